"""Streams to clients: pings while nothing happens, an end with the client or the server, and TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.program.conftest import Project

from retinue.app.stream import BehindError, FeedFrame
from retinue.errors import StateError
from retinue.frontends.server import sse
from retinue.frontends.server.sse import ByteStream, EventStream, encode_frames, with_pings

EVENT = FeedFrame(7, "run.ended", "r", None, b'{"type":"run.ended"}')
DELTA = FeedFrame(None, "text.delta", "r", None, b'{"type":"text.delta"}')


class Source:
    """Events that come when the test says so. `closed` is set when nobody listens any more."""

    def __init__(self, *batches: list[FeedFrame] | Exception) -> None:
        self.waiting = list(batches)
        self.closed = asyncio.Event()
        self.more = asyncio.Event()

    async def events(self) -> AsyncIterator[list[FeedFrame]]:
        try:
            while True:
                while self.waiting:
                    batch = self.waiting.pop(0)
                    if isinstance(batch, Exception):
                        raise batch
                    yield batch
                self.more.clear()
                await self.more.wait()
        finally:
            self.closed.set()


async def never() -> Any:
    await asyncio.Event().wait()


def test_only_events_of_the_log_have_a_number() -> None:
    assert encode_frames([EVENT, DELTA]) == (b'id: 7\ndata: {"type":"run.ended"}\n\ndata: {"type":"text.delta"}\n\n')


async def test_a_comment_is_sent_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "PING_SECONDS", 0.01)
    source = Source()
    stream = with_pings(source.events())
    assert await anext(stream) == b"retry: 1000\n\n"
    assert await anext(stream) == b": ping\n\n"
    source.waiting.append([EVENT])
    source.more.set()
    while (found := await anext(stream)) == b": ping\n\n":
        pass
    assert found == encode_frames([EVENT])
    await stream.aclose()  # type: ignore[attr-defined]
    assert source.closed.is_set()


@pytest.mark.parametrize(
    ("error", "said"), [(BehindError(), b"too slow"), (StateError("The disk is full."), b"The disk is full.")]
)
async def test_a_stream_that_cannot_go_on_says_why_and_ends(error: Exception, said: bytes) -> None:
    source = Source([EVENT], error)
    chunks = [chunk async for chunk in with_pings(source.events())]
    assert said in chunks[-1] and len(chunks) == 3
    assert source.closed.is_set()


@pytest.mark.parametrize("who", ["client", "server"])
async def test_a_stream_ends_with_its_client_and_with_the_server(who: str) -> None:
    source, closing, left = Source([EVENT]), asyncio.Event(), asyncio.Event()
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if b"run.ended" in sent[-1]:
            (closing if who == "server" else left).set()

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    async with asyncio.timeout(20):
        await EventStream(source.events(), closing)({"type": "http"}, receive, send)
        await source.closed.wait()


async def test_a_defect_ends_its_stream_alone_and_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"data: one\n\n"
        raise RuntimeError("a defect")

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await ByteStream(broken(), asyncio.Event())({"type": "http"}, never, send)
    assert [message.get("body") for message in sent] == [None, b"data: one\n\n", b""]
    assert "a defect" in capsys.readouterr().err


def test_with_a_certificate_the_server_speaks_tls_and_limits_handshakes(
    project: Project, serving: Any, tmp_path: Path
) -> None:
    import http.client

    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key, root = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "root.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(root)
    server = serving("--certificate", str(chain), "--key", str(key))
    assert server.info["url"].startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(root))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
    headers = {**server.headers, "Content-Type": "application/json"}
    connection.request("POST", "/v1/session", "{}", headers)
    response = connection.getresponse()
    assert response.status == 200
    key = json.loads(response.read())["key"]
    connection.request("GET", "/v1/runs", headers={"Authorization": f"Bearer {key}"})
    assert connection.getresponse().status == 200
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    assert plain.recv(1) == b"", "a handshake that does not begin is given up"
    plain.close()
    connection.close()
