"""Fetching from a site that does everything a site may do wrong."""

from __future__ import annotations

import gzip
import ssl
import threading
import tracemalloc
import zlib

import pytest
import trustme

from retinue.capabilities.web.addresses import AllowedHosts
from retinue.capabilities.web.service import Fetcher, Politeness
from retinue.http.address import FetchError
from tests.capabilities.web.conftest import Visit
from tests.capabilities.web.site import bomb, endless, endless_headers, packed, silent, slow

HERE = AllowedHosts(["127.0.0.1"])
MOST = 100_000


def fetcher(**options: object) -> Fetcher:
    return Fetcher(**{"allowed": HERE, "politeness": Politeness(2, 0.0), **options})  # type: ignore[arg-type]


async def problem(url: str, guarded: Fetcher | None = None, most: int = MOST) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await (guarded or fetcher()).fetch(url, limit=most)
    return caught.value


async def test_a_redirect_to_a_private_address_is_not_followed(visit: Visit) -> None:
    inside = visit({"/secret": lambda v: v.send("secret")})
    places = [
        f"http://localhost:{inside.port}/secret",
        f"http://[::1]:{inside.port}/secret",
        f"http://127.0.0.2:{inside.port}/secret",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:10.0.0.1]/",
        "file:///etc/passwd",
        "http://2130706433/",
        f"//user@localhost:{inside.port}/secret",
    ]
    site = visit({f"/{number}": lambda v, place=place: v.redirect(place) for number, place in enumerate(places)})
    for number in range(len(places)):
        error = await problem(f"{site.url}/{number}")
        assert error.problem in ("PRIVATE_NETWORK_BLOCKED", "INVALID_URL", "UNSUPPORTED_PROTOCOL"), places[number]
        assert error.hosts == ("127.0.0.1",)
    assert not inside.visits


async def test_five_redirects_are_followed_and_a_sixth_is_not(visit: Visit) -> None:
    def hop(v) -> None:
        left = int(v.path.rsplit("/", 1)[1])
        v.redirect(f"{left - 1}", 307) if left else v.send("there")

    site = visit({f"/hop/{number}": hop for number in range(8)})
    assert (await fetcher().fetch(f"{site.url}/hop/5", limit=MOST)).body == b"there"
    site.visits.clear()
    error = await problem(f"{site.url}/hop/6")
    assert error.problem == "TOO_MANY_REDIRECTS"
    assert sum(site.visits.values()) == 6


async def test_a_redirect_loop_ends(visit: Visit) -> None:
    site = visit({"/": lambda v: v.redirect("/", 301)})
    assert (await problem(f"{site.url}/")).problem == "TOO_MANY_REDIRECTS"
    assert site.visits["/"] == 6


async def test_a_redirect_to_a_host_that_rules_do_not_allow_is_not_followed(visit: Visit) -> None:
    other = visit({"/": lambda v: v.send("other")})
    site = visit({"/": lambda v: v.redirect(f"http://other.example:{other.port}/")})

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    guarded = fetcher(resolve=resolve, allowed=AllowedHosts(["127.0.0.1", "other.example"]))
    asked: list[str] = []

    def permit(url: str) -> str | None:
        asked.append(url)
        return "A rule forbids it."

    with pytest.raises(FetchError, match="A rule forbids it") as caught:
        await guarded.fetch(f"{site.url}/", limit=MOST, permit=permit)
    assert caught.value.problem == "NOT_PERMITTED"
    assert asked == [f"http://other.example:{other.port}/"]
    assert not other.visits
    assert (await guarded.fetch(f"{site.url}/", limit=MOST)).body == b"other"


async def test_an_endless_body_is_cut_and_is_a_success(visit: Visit) -> None:
    site = visit({"/": endless})
    found = await fetcher().fetch(f"{site.url}/", limit=MOST)
    assert found.truncated
    assert len(found.body) == MOST


async def test_a_slow_body_ends_with_the_time(visit: Visit) -> None:
    site = visit({"/slow": slow, "/silent": silent})
    for path in ("/slow", "/silent"):
        error = await problem(f"{site.url}{path}", fetcher(seconds=0.4))
        assert (error.problem, error.code) == ("TIMEOUT", "CONTENT_FETCH_TIMEOUT")


async def test_endless_headers_end(visit: Visit) -> None:
    site = visit({"/": endless_headers})
    assert (await problem(f"{site.url}/")).problem == "ENCODING"


@pytest.mark.parametrize("layers", ["gzip", "gzip, gzip"])
async def test_a_gzip_bomb_is_never_unpacked_whole(visit: Visit, layers: str) -> None:
    data = bomb()
    if layers == "gzip, gzip":
        data = gzip.compress(data)
    site = visit({"/": lambda v: packed(v, data, layers)})
    tracemalloc.start()
    try:
        found = await fetcher().fetch(f"{site.url}/", limit=MOST)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.truncated
    assert found.body == bytes(MOST)
    assert peak < 20_000_000


async def test_packed_bodies_are_unpacked(visit: Visit) -> None:
    text = b"some text, " * 50_000
    raw = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = raw.compress(text) + raw.flush()
    site = visit(
        {
            "/gzip": lambda v: packed(v, gzip.compress(text)),
            "/two": lambda v: packed(v, gzip.compress(text[:1000]) + gzip.compress(text[1000:])),
            "/deflate": lambda v: packed(v, zlib.compress(text), "deflate"),
            "/raw": lambda v: packed(v, deflated, "deflate"),
            "/twice": lambda v: packed(v, gzip.compress(gzip.compress(text)), "gzip, gzip"),
        }
    )
    for path in site.pages:
        found = await fetcher().fetch(f"{site.url}{path}", limit=1_000_000)
        assert found.body == text, path
        assert not found.truncated


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip, gzip", "compress", "\x7fx"])
async def test_what_was_packed_otherwise_is_refused(visit: Visit, encoding: str) -> None:
    site = visit({"/": lambda v: packed(v, b"\x1b\x03", encoding), "/broken": lambda v: packed(v, b"no gzip", "gzip")})
    assert (await problem(f"{site.url}/")).problem == "ENCODING"
    assert (await problem(f"{site.url}/broken")).problem == "ENCODING"


async def test_statuses_are_told_in_words(visit: Visit) -> None:
    site = visit({f"/{status}": lambda v, status=status: v.send("x", status=status) for status in (401, 403, 410, 500)})
    for path, words in {"/401": "login", "/403": "refuses", "/404": "no such page", "/500": "server failed"}.items():
        error = await problem(f"{site.url}{path}")
        assert error.problem == "HTTP_STATUS"
        assert words in error.message
        assert error.status == int(path[1:])


async def test_a_host_that_asks_for_patience_is_left_alone(visit: Visit) -> None:
    site = visit({"/": lambda v: v.send("", status=429, retry_after="60"), "/other": lambda v: v.send("fine")})
    guarded = fetcher()
    first = await problem(f"{site.url}/", guarded)
    second = await problem(f"{site.url}/other", guarded)
    assert first.problem == second.problem == "RATE_LIMITED"
    assert "60 seconds" in first.message
    assert site.visits["/other"] == 0


async def test_what_is_no_http_is_said(visit: Visit) -> None:
    site = visit({"/": lambda v: v.write(b"SSH-2.0-OpenSSH\r\n\r\n"), "/drop": lambda v: v.handler.connection.close()})
    assert (await problem(f"{site.url}/")).problem == "ENCODING"
    assert (await problem(f"{site.url}/drop")).problem == "NETWORK_ERROR"
    assert (await problem("http://127.0.0.1:9/")).problem == "NETWORK_ERROR"


async def test_one_host_gets_two_requests_at_a_time(visit: Visit) -> None:
    import asyncio

    together = threading.Barrier(2, timeout=60)

    def page(v) -> None:
        together.wait()
        v.send("x")

    site = visit({f"/{number}": page for number in range(8)})
    guarded = fetcher()
    await asyncio.gather(*(guarded.fetch(f"{site.url}/{number}", limit=MOST) for number in range(8)))
    assert site.crowd == 2


async def test_waiting_for_ones_turn_is_not_the_hosts_time(visit: Visit) -> None:
    """Five pages, one at a time, that take longer together than one of them may."""
    import asyncio

    site = visit({f"/{number}": lambda v: v.site.over.wait(0.5) or v.send("x") for number in range(5)})
    guarded = fetcher(seconds=2.0, politeness=Politeness(1, 0.0))
    found = await asyncio.gather(*(guarded.fetch(f"{site.url}/{number}", limit=MOST) for number in range(5)))
    assert len(found) == 5


async def test_tls_is_verified_for_the_name_not_the_address(visit: Visit) -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("named.example").configure_cert(server)
    authority.configure_trust(client)
    site = visit({"/": lambda v: v.send("secure")}, tls=server)

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    allowed = AllowedHosts(["*.example"])
    guarded = fetcher(resolve=resolve, allowed=allowed, tls=client)
    found = await guarded.fetch(f"https://named.example:{site.port}/", limit=MOST)
    assert found.body == b"secure"
    error = await problem(f"https://other.example:{site.port}/", guarded)
    assert "not trusted" in error.message
    untrusting = fetcher(resolve=resolve, allowed=allowed)
    assert "not trusted" in (await problem(f"https://named.example:{site.port}/", untrusting)).message
