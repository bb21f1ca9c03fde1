"""No connection goes to an address that was not judged: names, numbers, redirects, DNS that lies."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import string
from ipaddress import IPv4Address, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.capabilities.web.addresses import AllowedHosts, follow, parse_target, refused_address
from retinue.capabilities.web.connect import Pin, check_target, pin
from retinue.capabilities.web.service import Fetcher, Politeness
from retinue.http.address import FetchError
from tests.capabilities.web.site import Site

NOBODY = AllowedHosts(())
PUBLIC = "93.184.216.34"


def judge(url: str, allowed: AllowedHosts = NOBODY) -> str | None:
    """The problem that is found without looking anything up."""
    try:
        check_target(parse_target(url), allowed)
    except FetchError as error:
        return error.problem
    return None


@pytest.mark.parametrize(
    "url", ["", "   ", "not a url", "example.com", "http://", "http:///path", "://x", "http:example.com"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    assert judge(url) == "INVALID_URL"


@pytest.mark.parametrize(
    "url",
    ["ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "gopher://x/", "ws://x/"],
)
def test_other_schemes_are_refused(url: str) -> None:
    assert judge(url) == "UNSUPPORTED_PROTOCOL"


PRIVATE = [
    *(
        "localhost:3000",
        "localhost.",
        "LOCALHOST",
        "app.localhost",
        "myhost.local",
        "service.internal",
        "a.b.internal.",
    ),
    *("0.0.0.0", "10.0.0.1", "10.255.255.255", "127.0.0.1", "127.0.0.2", "169.254.169.254", "172.16.0.1"),
    *("172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "224.0.0.1", "255.255.255.255", "127.0.0.1."),
    *("[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[fd00::1]", "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]"),
    *("[::ffff:192.168.1.1]", "[::ffff:169.254.169.254]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b::808:808]"),
    *("[2002:7f00:1::]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "[64:ff9b:1::1]", "[::127.0.0.1]", "[2001:db8::1]"),
    *("168.63.129.16", "100.100.100.200", "192.0.0.192", "198.18.0.1", "240.0.0.1", "metadata.google.internal"),
]


@pytest.mark.parametrize("host", PRIVATE)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_is_not_of_the_public_internet_is_refused(scheme: str, host: str) -> None:
    assert judge(f"{scheme}://{host}/latest/meta-data") == "PRIVATE_NETWORK_BLOCKED"


DISGUISED = [
    *("2130706433", "0x7f000001", "0x7f.1", "127.1", "127.0.1", "0177.0.0.1", "017700000001", "0x7f.0.0.0x1"),
    *("1.2.3.4.5", "127.0.0.1%00", "127.0.0.1%2f", "%31%32%37.0.0.1", "①②⑦.⓪.⓪.①:80x", "[fe80::1%25eth0]", "[::1"),
    *(
        "user@127.0.0.1",
        "example.com@127.0.0.1",
        "127.0.0.1\\@example.com",
        "example.com\\.evil",
        "a b",
        "exa\tmple.com",
    ),
    *(
        "example.com:99999",
        "example.com:x",
        "example.com:-1",
        "a..b",
        "-a.com",
        "",
        ".",
        "..",
        "example.com..",
        "0x7f.0.0.1.",
    ),
]


@pytest.mark.parametrize("host", DISGUISED)
def test_what_two_programs_could_read_differently_is_refused(host: str) -> None:
    assert judge(f"http://{host}/") == "INVALID_URL"


def test_wide_digits_are_the_address_they_look_like() -> None:
    assert judge("http://①②⑦.⓪.⓪.①/") == "PRIVATE_NETWORK_BLOCKED"
    assert judge("http://127。0。0。1/") == "PRIVATE_NETWORK_BLOCKED"


@pytest.mark.parametrize(
    "host", ["8.8.8.8", "1.1.1.1", PUBLIC, f"[::ffff:{PUBLIC}]", "[2606:4700::1111]", "example.com"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_public_addresses_pass(scheme: str, host: str) -> None:
    assert judge(f"{scheme}://{host}/") is None


def test_port_path_query_and_hash_stay() -> None:
    target = parse_target("HTTPS://Example.COM.:8443/a%20b/ü?q=1&r=ä#part")
    assert target.full_url == "https://example.com:8443/a%20b/%C3%BC?q=1&r=%C3%A4#part"
    assert parse_target("http://bücher.example/").host == "xn--bcher-kva.example"


@pytest.mark.parametrize("port", [22, 25, 110, 1, 6379, 11211, 6667])
def test_ports_of_other_services_are_refused(port: int) -> None:
    assert judge(f"http://example.com:{port}/") == "PRIVATE_NETWORK_BLOCKED"
    assert judge(f"http://example.com:{port}/", AllowedHosts([f"example.com:{port}"])) is None


def test_a_setting_allows_a_host_a_port_or_a_network() -> None:
    allowed = AllowedHosts(["wiki.internal", "*.dev.local", "127.0.0.1:8080", "10.1.0.0/16", "[::1]:9", "nonsense/99"])
    for url in (
        "http://wiki.internal:22/",
        "http://a.dev.local/",
        "http://127.0.0.1:8080/",
        "http://10.1.2.3/",
        "http://[::1]:9/",
    ):
        assert judge(url, allowed) is None, url
    for url in (
        "http://x.wiki.internal/",
        "http://dev.local/",
        "http://127.0.0.1:81/",
        "http://10.2.0.1/",
        "http://[::1]/",
    ):
        assert judge(url, allowed) == "PRIVATE_NETWORK_BLOCKED", url


class Wires:
    """Where connections would go. Nothing is connected."""

    def __init__(self) -> None:
        self.pins: list[Pin] = []

    async def __call__(self, place: Pin, tls: Any) -> Any:
        self.pins.append(place)
        raise ConnectionRefusedError(111, "Connection refused")


def fetcher(answers: Any, wires: Any) -> Fetcher:
    async def resolve(host: str, port: int) -> list[str]:
        return answers(host)

    return Fetcher(resolve=resolve, connect=wires, politeness=Politeness(2, 0.0))


async def test_dns_that_changes_its_answer_is_asked_once_and_the_checked_address_is_used() -> None:
    answers = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]])
    wires = Wires()
    with pytest.raises(FetchError) as caught:
        await fetcher(lambda host: next(answers), wires).fetch("http://rebind.example/", limit=1000)
    assert caught.value.problem == "NETWORK_ERROR"
    assert [place.addresses for place in wires.pins] == [(IPv4Address(PUBLIC),)]
    assert list(answers) == [["127.0.0.1"], ["127.0.0.1"]]


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::ffff:127.0.0.1"], ["fe80::1"], ["64:ff9b::7f00:1"], []]
)
async def test_a_name_that_leads_inside_is_refused_whatever_else_it_leads_to(answer: list[str]) -> None:
    wires = Wires()
    with pytest.raises(FetchError) as caught:
        await fetcher(lambda host: answer, wires).fetch("http://inside.example/", limit=1000)
    assert caught.value.problem == ("PRIVATE_NETWORK_BLOCKED" if answer else "DNS_RESOLUTION_FAILED")
    assert not wires.pins


async def test_a_translator_found_by_dns_is_judged_by_what_is_behind_it() -> None:
    target = parse_target("http://six.example/")

    async def resolve(host: str, port: int) -> list[str]:
        return ["64:ff9b::5db8:d822"]

    assert str((await pin(target, NOBODY, resolve)).addresses[0]) == "64:ff9b::5db8:d822"


async def test_the_connected_address_is_the_checked_one_and_the_name_stays_in_the_request() -> None:
    with Site({"/": lambda visit: visit.send("hello", "text/plain")}) as site:

        async def resolve(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        allowed = AllowedHosts(["site.example"])
        found = await Fetcher(resolve=resolve, allowed=allowed).fetch(f"http://site.example:{site.port}/", limit=1000)
        assert found.body == b"hello"
        assert found.hosts == ("site.example",)
        assert site.seen[0].headers["host"] == f"site.example:{site.port}"
        assert "cookie" not in site.seen[0].headers
        assert "Retinue" in site.seen[0].headers["user-agent"]


def odd_urls(count: int, seed: int) -> list[str]:
    """URLs made of pieces that have fooled parsers before."""
    rng = random.Random(seed)
    hosts = [
        *(
            "127.0.0.1",
            "localhost",
            "2130706433",
            "0x7f.1",
            "017700000001",
            "[::1]",
            "[::ffff:7f00:1]",
            "169.254.169.254",
        ),
        *("10.0.0.1", "192.168.0.1", "0", "127.1", "[fe80::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::1]", "①②⑦.0.0.1"),
        *(
            "metadata.google.internal",
            "localtest.example",
            "example.com",
            "8.8.8.8",
            "[2606:4700::1111]",
            "127.0.0.1.nip.example",
        ),
        *(
            "ⓛocalhost",
            "loc\u00adalhost",
            "local\u200bhost",
            "127。0。0。1",
            "[::]",
            "[0:0:0:0:0:ffff:127.0.0.1]",
            "0.0.0.0",
        ),
    ]
    parts = [
        "@",
        ":",
        "/",
        "\\",
        "#",
        "?",
        "%00",
        "%2e",
        "%40",
        "\t",
        "\n",
        " ",
        ".",
        "..",
        "[",
        "]",
        "//",
        "user:pass@",
        ":80",
        ":22",
    ]
    urls = []
    for _ in range(count):
        scheme = rng.choice(
            ["http://", "https://", "http:", "HTTP://", "http:/", "http:\\\\", "//", "ftp://", "file://", ""]
        )
        pieces = [rng.choice(hosts)]
        for _ in range(rng.randrange(4)):
            pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(parts + hosts))
        text = scheme + "".join(pieces) + rng.choice(["", "/", "/x?y#z", "/../.."])
        if rng.random() < 0.3:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(string.printable + "ßſıK。．｡⒈\u2028\ufeff") + text[at:]
        urls.append(text)
    return urls


async def test_ten_thousand_odd_urls_and_no_connection_to_a_refused_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where connections are really made: at the sockets. Names lead anywhere at random."""
    rng = random.Random(11)
    reached: list[str] = []

    async def sock_connect(loop: Any, sock: socket.socket, address: tuple[Any, ...]) -> None:
        reached.append(address[0])
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", sock_connect)
    somewhere = [
        "127.0.0.1",
        "10.0.0.1",
        "::1",
        "169.254.169.254",
        "fd00::1",
        "::ffff:10.1.1.1",
        PUBLIC,
        "2606:4700::1111",
    ]

    async def resolve(host: str, port: int) -> list[str]:
        return rng.choices(somewhere, k=rng.choice([1, 1, 2]))

    guarded = Fetcher(resolve=resolve, politeness=Politeness(2, 0.0))
    outcomes: dict[str, int] = {}
    for url in odd_urls(10_000, seed=7):
        with pytest.raises(FetchError) as caught:
            await guarded.fetch(url, limit=1000)
        outcomes[caught.value.problem] = outcomes.get(caught.value.problem, 0) + 1
    assert reached
    for address in reached:
        assert refused_address(ip_address(address)) is None, address
    assert sum(outcomes.values()) == 10_000
    assert outcomes["PRIVATE_NETWORK_BLOCKED"] > 500
    assert outcomes["INVALID_URL"] > 500


@given(st.text(max_size=80))
def test_any_text_is_a_url_or_a_fetch_error(text: str) -> None:
    for url in (text, f"http://{text}", f"https://example.com/{text}"):
        try:
            target = parse_target(url)
        except FetchError:
            continue
        assert parse_target(target.full_url) == target
        assert target.url.isascii()
        assert target.url.isprintable()


@given(
    st.text(alphabet=st.characters(), max_size=60)
    | st.text(alphabet="/:@?#[]%\\.<> \ud800\u200b0x1localhost", max_size=40)
)
def test_any_redirect_leads_to_a_url_or_a_fetch_error(place: str) -> None:
    with contextlib.suppress(FetchError):
        assert follow(parse_target("https://example.com/a/b?c"), place).url.isascii()


@given(st.ip_addresses())
def test_no_address_that_python_calls_private_passes(ip: Any) -> None:
    if ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        mapped = getattr(ip, "ipv4_mapped", None)
        nat64 = ip.version == 6 and int(ip) >> 32 == 0x64FF9B << 64
        if mapped is None and not nat64:
            assert refused_address(ip) is not None
