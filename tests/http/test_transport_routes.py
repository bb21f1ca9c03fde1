"""Proxies of the environment and TLS: where a request goes, and to whom it is shown."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.http.test_transport import fetch
from tests.models.servers import Handler, Reply, Server, listening, settle

from retinue.http import connection as connect
from retinue.http.address import Address, proxy_for
from retinue.http.transport import Transport, TransportError
from retinue.models.failures import Wire, from_transport


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    made = Transport(connect_timeout=5, idle_timeout=5)
    yield made
    await made.close()


# ------------------------------------------------------------------ proxies
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_a_proxy_of_the_environment_is_used(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(Reply([b"via proxy"])) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:pw@127.0.0.1:{proxy.port}")
        assert await fetch(transport, "http://models.example/v1/x?y=1") == (200, b"via proxy")
        seen = proxy.seen[0]
        assert seen.target == "http://models.example/v1/x?y=1"
        assert seen.headers["host"] == "models.example"
        assert seen.headers["proxy-authorization"] == "Basic bWU6cHc="


async def test_no_proxy_and_loopback_go_directly(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(Reply([b"direct"])) as server:
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
        assert await fetch(transport, server.url) == (200, b"direct")
        monkeypatch.setenv("NO_PROXY", "models.invalid,other.example")
        with pytest.raises(TransportError) as caught:
            await fetch(transport, "http://models.invalid/v1")
        assert caught.value.problem == "unreachable" and "proxy" not in caught.value.message


async def test_a_proxy_that_is_down_is_named_without_its_password(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Server() as server:
        port = server.port
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
    with pytest.raises(TransportError) as caught:
        await fetch(transport, "http://models.example/v1")
    assert f"127.0.0.1:{port}" in caught.value.message and "secret" not in caught.value.message
    assert caught.value.problem == "proxy", "the server's address is not what is wrong"
    failure = from_transport(Wire("openai/m", "http://models.example/v1"), caught.value)
    assert "HTTPS_PROXY" in failure.remedy and "base URL" not in failure.remedy


async def test_a_socks_proxy_is_refused_by_name(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9050")
    with pytest.raises(TransportError) as caught:
        await fetch(transport, "https://models.example/v1")
    assert "speaks socks5" in caught.value.message
    assert not from_transport(Wire("openai/m", "http://x"), caught.value).transient


def test_no_proxy_may_name_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost, 10.0.0.0/8,fd00::/8")
    assert proxy_for(Address("http", "10.1.2.3", 80)) is None
    assert proxy_for(Address("http", "fd00::1", 80)) is None
    assert proxy_for(Address("http", "11.1.2.3", 80)) == "http://proxy.example:3128"
    assert proxy_for(Address("http", "models.example", 80)) == "http://proxy.example:3128"


async def test_a_proxy_that_refuses_the_tunnel(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(Reply([], status=407, framing="length")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(TransportError) as caught:
            await fetch(transport, "https://models.example/v1")
        assert caught.value.problem == "proxy" and "407" in caught.value.message
        assert proxy.seen[0].method == "CONNECT" and proxy.seen[0].target == "models.example:443"


# ------------------------------------------------------------------ TLS
def speaking(body: bytes) -> Handler:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    return connected


def authority(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext, bytes]:
    """A server's context for that name, a client's that trusts it, and the certificate."""
    trustme = pytest.importorskip("trustme")
    made = trustme.CA()
    served, trusting = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context())
    made.issue_cert(name).configure_cert(served)
    made.configure_trust(trusting)
    return served, trusting, made.cert_pem.bytes()


async def test_certificates_are_verified() -> None:
    served, trusting, _ = authority("localhost")
    trusted, plain = Transport(tls=trusting), Transport()
    async with listening(speaking(b"safe"), served) as port:
        url = f"https://localhost:{port}/v1"
        assert await fetch(trusted, url) == (200, b"safe")
        assert await fetch(trusted, url) == (200, b"safe")
        with pytest.raises(TransportError) as caught:
            await fetch(plain, url)
        assert caught.value.problem == "certificate"
        with pytest.raises(TransportError) as caught:
            await fetch(trusted, url.replace("localhost", "127.0.0.1"))
        assert caught.value.problem == "certificate"
        await trusted.close()


async def test_certificates_of_ssl_cert_file_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served, _, certificate = authority("localhost")
    (tmp_path / "ca.pem").write_bytes(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    connect.default_tls.cache_clear()
    transport = Transport()
    try:
        async with listening(speaking(b"safe"), served) as port:
            assert await fetch(transport, f"https://localhost:{port}") == (200, b"safe")
            await transport.close()
    finally:
        connect.default_tls.cache_clear()


async def test_tls_spoken_to_a_plain_server_is_explained(transport: Transport) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(connected) as port:
        with pytest.raises(TransportError) as caught:
            await fetch(transport, f"https://127.0.0.1:{port}")
        assert caught.value.problem == "unreachable"


async def test_tls_through_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    served, trusting, _ = authority("models.example")
    heads: list[bytes] = []

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async with listening(speaking(b"inside"), served) as port:

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

        async with listening(tunnel) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:pw@127.0.0.1:{proxy}")
            transport = Transport(tls=trusting)
            assert await fetch(transport, "https://models.example/v1") == (200, b"inside")
            assert await fetch(transport, "https://models.example/v1") == (200, b"inside")
            await transport.close()
            await settle()
    assert len(heads) == 1 and heads[0].startswith(b"CONNECT models.example:443 HTTP/1.1\r\n")
    assert b"proxy-authorization: Basic bWU6cHc=" in heads[0]
