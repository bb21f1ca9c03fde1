"""A conversation with one language server: requests and their answers, and requests of the server.

A message is a header with the length, then JSON; its size is bounded. A request whose caller is gone is cancelled at
the server. When the server ends, every waiting caller gets an error at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.capabilities.lsp.tool import LspError, ServerFailedError

if TYPE_CHECKING:
    from retinue.core.programs import Confinement
    from retinue.tools.processes import ErrorLog, ServerProcess

MAX_HEADER_BYTES = 8 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
_HEADER_END = b"\r\n\r\n"
_METHOD_NOT_FOUND = -32601


class WireError(Exception):
    """Data that violates the protocol. The rest of the stream cannot be decoded."""


class RefusedError(Exception):
    """The server answered a request with an error. `code` is the protocol's number for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def encode(message: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), ensure_ascii=True).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Decoder:
    """Decodes chunks of output into messages."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._length: int | None = None

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the complete messages. Raise WireError; then the decoder cannot be used any more."""
        self._waiting += data
        while (body := self._next()) is not None:
            try:
                message = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise WireError(f"it sent something that is not JSON: {error}") from None
            if not isinstance(message, dict):
                raise WireError("it sent JSON that is not an object")
            yield message

    def _next(self) -> bytes | None:
        if self._length is None:
            end = self._waiting.find(_HEADER_END)
            if end < 0:
                if len(self._waiting) > MAX_HEADER_BYTES:
                    raise WireError("it sent something without a header")
                return None
            self._length = _length(self._cut(end + len(_HEADER_END))[:end])
        if len(self._waiting) < self._length:
            return None
        body, self._length = self._cut(self._length), None
        return body

    def _cut(self, size: int) -> bytes:
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        return data


def _length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            text = value.strip()
            if text.isdigit() and len(text) < 12 and int(text) <= MAX_BODY_BYTES:
                return int(text)
            raise WireError(f"it announced a message of {text[:20].decode('ascii', 'replace')} bytes")
    raise WireError(f"its header has no length: {header[:80]!r}")


class WatchedServer(Struct, frozen=True):
    """A server's process, its log, and its sandbox, which is removed at its end."""

    process: ServerProcess
    log: ErrorLog
    box: Confinement | None

    async def end(self) -> None:
        await self.process.end()
        if self.box is not None:
            await asyncio.to_thread(self.box.close)


class LspConnection:
    def __init__(
        self, server: WatchedServer, answer: Callable[[str, Any], Any], notice: Callable[[str, Any], None]
    ) -> None:
        """`answer` returns our answer to a request of the server, or raises LookupError for an unknown one. `notice` is
        called with every notification, and at the end with `$/gone`."""
        self.server = server
        self._answer = answer
        self._notice = notice
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._sending = asyncio.Lock()
        self.why_gone: str | None = None
        self._reader = asyncio.create_task(self._read(), name="lsp reader")

    async def request(self, method: str, params: Any, seconds: float) -> Any:
        """Return the result. Raise ServerFailedError, RefusedError, or an LspError with LSP_TIMEOUT."""
        number = next(self._ids)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._send({"id": number, "method": method, "params": params})
                return await waiting
        except TimeoutError:
            await self._cancel_request(number)
            raise LspError("LSP_TIMEOUT", f"the language server did not answer {method} in {seconds:g} s.") from None
        except asyncio.CancelledError:
            # Shielded, because after a second cancellation the server would continue for nothing.
            with suppress(ServerFailedError):
                await asyncio.shield(self._cancel_request(number))
            raise
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: Any = None) -> None:
        optional = {} if params is None else {"params": params}
        await self._send({"method": method, **optional})

    async def close(self) -> None:
        self._end_waiting("it was stopped")
        self._reader.cancel()
        await self.server.end()

    def gone(self) -> ServerFailedError:
        return ServerFailedError(f"the language server is gone: {self.why_gone}.")

    async def _cancel_request(self, number: int) -> None:
        with suppress(ServerFailedError, TimeoutError):
            async with asyncio.timeout(1):
                await self._send({"method": "$/cancelRequest", "params": {"id": number}})

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            if self.why_gone is None:
                try:
                    return await self.server.process.write(encode(message))
                except OSError:
                    self._end_waiting("it no longer reads its input")
            raise self.gone()

    async def _read(self) -> None:
        decoder = Decoder()
        why = "it ended"
        try:
            while data := await self.server.process.read():
                for message in decoder.feed(data):
                    self._take(message)
        except (WireError, OSError) as error:
            why = str(error)
        finally:
            printed = self.server.log.tail.strip()
            if printed:
                why = f"{why}; it said: {printed[-300:]}"
            self._end_waiting(why)

    def _take(self, message: Mapping[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            if number is None:
                self._notice(method, message.get("params"))
            else:
                self._reply(number, method, message.get("params"))
            return
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.done():
            return
        error = message.get("error")
        if isinstance(error, Mapping):
            code = error.get("code")
            waiting.set_exception(RefusedError(code if isinstance(code, int) else 0, str(error.get("message", ""))))
        else:
            waiting.set_result(message.get("result"))

    def _reply(self, number: Any, method: str, params: Any) -> None:
        try:
            reply: dict[str, Any] = {"id": number, "result": self._answer(method, params)}
        except LookupError:
            reply = {"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": f"{method} is not supported"}}
        # If the server is gone, the reply is not needed, and asyncio must not report its exception.
        task = asyncio.ensure_future(self._send(reply))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _end_waiting(self, why: str) -> None:
        if self.why_gone is None:
            self.why_gone = why
            self._notice("$/gone", {})
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self.gone())
                # If no caller waits, asyncio would report an exception that was never retrieved.
                waiting.exception()
