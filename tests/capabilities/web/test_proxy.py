"""Through a proxy: it is told the checked address, and the name stays in Host and TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from retinue.capabilities.web.service import Fetcher
from retinue.http.address import FetchError
from tests.capabilities.web.conftest import Visit

PUBLIC = "93.184.216.34"


class Proxy:
    """A real proxy that leads every tunnel to one port of this machine."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.goal = 0
        self.answer = b"HTTP/1.1 200 OK\r\n\r\n"
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split(b"\r\n")[0].decode())
        writer.write(self.answer)
        if b" 200 " in self.answer:
            inner, outer = await asyncio.open_connection("127.0.0.1", self.goal)
            await asyncio.gather(_pump(reader, outer), _pump(inner, writer))
        writer.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    made = Proxy()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{made.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield made
    server.close()


def fetcher(tls: ssl.SSLContext | None = None, address: str = PUBLIC) -> Fetcher:
    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    return Fetcher(resolve=resolve, tls=tls)


async def test_a_page_through_a_proxy(proxy: Proxy, visit: Visit) -> None:
    site = visit({"/": lambda v: v.send("hello")})
    proxy.goal = site.port
    found = await fetcher().fetch("http://named.example/", limit=1000)
    assert found.body == b"hello"
    assert proxy.asked == [f"CONNECT {PUBLIC}:80 HTTP/1.1"]
    assert site.seen[0].headers["host"] == "named.example"


async def test_a_secure_page_through_a_proxy(proxy: Proxy, visit: Visit) -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("named.example").configure_cert(server)
    authority.configure_trust(client)
    site = visit({"/": lambda v: v.send("secure")}, tls=server)
    proxy.goal = site.port
    assert (await fetcher(client).fetch("https://named.example/", limit=1000)).body == b"secure"
    assert proxy.asked == [f"CONNECT {PUBLIC}:443 HTTP/1.1"]
    with pytest.raises(FetchError, match="not trusted"):
        await fetcher(client).fetch("https://other.example/", limit=1000)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", b"garbage\r\n\r\n", b""])
async def test_a_proxy_that_refuses(proxy: Proxy, answer: bytes) -> None:
    proxy.answer = answer
    with pytest.raises(FetchError) as caught:
        await fetcher().fetch("http://named.example/", limit=1000)
    assert caught.value.problem == "NETWORK_ERROR"


async def test_no_proxy_is_asked_for_what_is_refused(proxy: Proxy) -> None:
    for made, url in ((fetcher(address="10.0.0.1"), "http://named.example/"), (fetcher(), "http://192.168.0.1/")):
        with pytest.raises(FetchError) as caught:
            await made.fetch(url, limit=1000)
        assert caught.value.problem == "PRIVATE_NETWORK_BLOCKED"
    assert not proxy.asked
