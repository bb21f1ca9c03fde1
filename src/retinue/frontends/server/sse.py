"""The event stream as server-sent events.

A durable event has its number as `id`, so a browser resumes by itself after it reconnects. Deltas and notices have no
id. A comment every 15 seconds shows both sides that the connection is alive. Available events are sent together. A
client that does not read is disconnected (`connections`); its run continues, and it may reconnect.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import AsyncIterator, Sequence

from starlette.types import Receive, Scope, Send

from retinue.app.stream import BehindError, FeedFrame
from retinue.core.encode import dump
from retinue.errors import RetinueError

PING_SECONDS = 15.0
RETRY_MS = 1000
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
)
_PING_COMMENT = b": ping\n\n"


def encode_frames(frames: Sequence[FeedFrame]) -> bytes:
    """Return events in the format of the stream."""
    parts = []
    for frame in frames:
        if frame.number is not None:
            parts.append(b"id: %d\n" % frame.number)
        parts.append(b"data: %b\n\n" % frame.data)
    return b"".join(parts)


class ByteStream:
    """An ASGI response that sends the chunks until they end, the client disconnects, or the server closes."""

    def __init__(self, chunks: AsyncIterator[bytes], closing: asyncio.Event) -> None:
        self._chunks = chunks
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        sender = asyncio.create_task(self._send_all(send), name="stream to a client")
        watchers = {asyncio.create_task(_wait_for_disconnect(receive)), asyncio.create_task(self._closing.wait())}
        try:
            await asyncio.wait({sender, *watchers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sender, *watchers):
                task.cancel()
            await asyncio.wait({sender, *watchers})
            error = None if sender.cancelled() else sender.exception()
            # A disconnected client is not an error of the server.
            if error is not None and not isinstance(error, OSError):
                traceback.print_exception(error, file=sys.stderr)
        with contextlib.suppress(OSError, RuntimeError):
            async with asyncio.timeout(1.0):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        try:
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            close = getattr(self._chunks, "aclose", None)
            if close is not None:
                await close()


class EventStream(ByteStream):
    """The response of a stream route."""

    def __init__(self, events: AsyncIterator[list[FeedFrame]], closing: asyncio.Event) -> None:
        super().__init__(with_pings(events), closing)


async def with_pings(events: AsyncIterator[list[FeedFrame]]) -> AsyncIterator[bytes]:
    """Yield events as bytes, and a comment whenever nothing happened for a while."""
    yield b"retry: %d\n\n" % RETRY_MS
    waiting: asyncio.Future[list[FeedFrame]] = asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=PING_SECONDS)
            if not done:
                yield _PING_COMMENT
                continue
            try:
                frames = waiting.result()
            except StopAsyncIteration:
                return
            except BehindError:
                # The response ends, so that the client reconnects.
                yield b": too slow, come back with Last-Event-ID\n\n"
                return
            except RetinueError as error:
                yield b"event: problem\ndata: %b\n\n" % dump({"code": error.code, "detail": str(error)})
                return
            yield encode_frames(frames)
            waiting = asyncio.ensure_future(anext(events))
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
