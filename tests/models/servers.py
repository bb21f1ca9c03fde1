"""A real HTTP server on loopback whose every byte is scripted.

Replies are used up in order, one per request; what arrived is kept for the test to look at.
A step of a body is bytes (sent as one chunk and flushed), a number (seconds to wait), or one of
the words `cut` (close in the middle), `reset` (RST) and `hang` (silence until the client goes).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Step = bytes | float | Literal["cut", "reset", "hang"]


@dataclass(frozen=True)
class Reply:
    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    framing: Literal["chunked", "length", "close"] = "chunked"


@dataclass(frozen=True)
class Seen:
    method: str
    target: str
    headers: Mapping[str, str]
    raw: bytes
    connection: int

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


def failing(status: int, body: Any, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([data], status, {"content-type": "application/json", **names}, "length")


def sse(*events: Any, done: bool = False) -> list[bytes]:
    """Events as Anthropic and OpenAI write them; a mapping with a `type` also gets its name."""
    out = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        out.append(f"{name}data: {json.dumps(event)}\n\n".encode())
    return [*out, b"data: [DONE]\n\n"] if done else out


class Server:
    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.seen: list[Seen] = []
        self.gone = asyncio.Event()
        """Set when a client left in the middle of a reply."""
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def bodies(self) -> list[Any]:
        return [seen.body for seen in self.seen]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**26)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        number = self._connections
        try:
            while await self._exchange(reader, writer, number):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append(Seen(method, target, headers, raw, number))
        reply = self.replies.pop(0) if self.replies else failing(500, {"error": {"message": "no reply is scripted"}})
        return await self._answer(reply, reader, writer)

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        headers = dict(reply.headers)
        if reply.framing == "chunked":
            headers["transfer-encoding"] = "chunked"
        elif reply.framing == "length":
            headers["content-length"] = str(sum(len(step) for step in reply.steps if isinstance(step, bytes)))
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        if reply.steps[:1] not in (["reset"], ["cut"]):
            writer.write("\r\n".join(lines).encode("latin-1"))
        for step in reply.steps:
            if isinstance(step, bytes):
                writer.write(b"%x\r\n%s\r\n" % (len(step), step) if reply.framing == "chunked" and step else step)
                await writer.drain()
            elif step == "hang":
                await reader.read()
                self.gone.set()
                return False
            elif step == "reset":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            elif step == "cut":
                return False
            else:
                assert isinstance(step, float)
                await asyncio.sleep(step)
        if reply.framing == "chunked":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return reply.framing != "close"


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server for other protocols: yields its port, and leaves no connection behind."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await settle()


async def settle() -> None:
    """Lets closed sockets be closed."""
    for _ in range(5):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def raw_server(*answers: bytes) -> AsyncIterator[str]:
    """Sends exactly these bytes, one answer per connection, whatever it was asked."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line]
        await reader.readexactly(length[0] if length else 0)
        writer.write(left.pop(0))
        await writer.drain()

    async with listening(answer) as port:
        yield f"http://127.0.0.1:{port}"
