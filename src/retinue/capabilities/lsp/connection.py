"""A conversation with one language server: requests and their answers, and what the server asks.

A message is a header with the length, then JSON; its size is bounded. Answers are checked against the
protocol's types when they arrive, so that no other module meets an answer of another shape. A request
that nobody waits for any more is cancelled at the server. When the server ends, every waiting caller
is told at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from retinue.capabilities.lsp.protocol import LspError, RefusedError, ServerFailedError

if TYPE_CHECKING:
    from lsprotocol import types


MOST_HEADER = 8 * 1024
MOST_BODY = 64 * 1024 * 1024
_END = b"\r\n\r\n"


class WireError(Exception):
    """Data that is not the protocol. Nothing after it can be understood."""


def encode(message: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), ensure_ascii=True).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Decoder:
    """Turns pieces of output into whole messages."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._length: int | None = None

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete. Raise WireError, after which the decoder cannot be used."""
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
            end = self._waiting.find(_END)
            if end < 0:
                if len(self._waiting) > MOST_HEADER:
                    raise WireError("it sent something without a header")
                return None
            self._length = _length(bytes(self._waiting[:end]))
            del self._waiting[: end + len(_END)]
        if len(self._waiting) < self._length:
            return None
        body = bytes(self._waiting[: self._length])
        del self._waiting[: self._length]
        self._length = None
        return body


def _length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            text = value.strip()
            if text.isdigit() and len(text) < 12 and int(text) <= MOST_BODY:
                return int(text)
            raise WireError(f"it announced a message of {text[:20].decode('ascii', 'replace')} bytes")
    raise WireError(f"its header has no length: {header[:80]!r}")


_METHOD_NOT_FOUND = -32601
_LARGE = 2_000
"""Results with more entries are converted in a thread."""


class Program(Protocol):
    """A started server program."""

    @property
    def pid(self) -> int: ...

    @property
    def code(self) -> int | None: ...

    async def read(self) -> bytes:
        """Return the next piece of its output; empty at the end."""
        ...

    async def write(self, data: bytes) -> None: ...

    def cut(self) -> None:
        """It ends soon, with all it started, whatever becomes of us. Needs no event loop."""
        ...

    async def end(self) -> None:
        """It has ended, with all it started, when this returns. Safe to repeat."""
        ...

    @property
    def said(self) -> str:
        """The end of what it wrote to its standard error."""
        ...


Answer = Callable[[str, Any], Any]
"""Returns our answer to a request of the server; raises LookupError for an unknown request."""


class LspConnection:
    def __init__(self, program: Program, answer: Answer, heard: Callable[[str, Any], None]) -> None:
        """`heard` is called with every notification, and with `$/gone` when there will be no more."""
        self.program = program
        self._answer = answer
        self._heard = heard
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._sending = asyncio.Lock()
        self.why_gone: str | None = None
        self._reader = asyncio.create_task(self._read(), name="lsp reader")

    @property
    def live(self) -> bool:
        return self.why_gone is None

    async def request(self, method: str, params: Any, seconds: float, *, typed: bool = True) -> Any:
        """Return the result, as the protocol's type if `typed`. Raise ServerFailedError, RefusedError, or an LspError
        with LSP_TIMEOUT."""
        number = next(self._ids)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._send({"id": number, "method": method, "params": _plain(params)})
                result = await waiting
                if not typed:
                    return result
                return await _structure_result(method, result)
        except TimeoutError:
            await self._call_off(number)
            raise LspError("LSP_TIMEOUT", f"the language server did not answer {method} in {seconds:g} s.") from None
        except asyncio.CancelledError:
            # Shielded, because a second cancellation would leave the server working for nobody.
            with suppress(ServerFailedError):
                await asyncio.shield(self._call_off(number))
            raise
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: Any = None) -> None:
        message: dict[str, Any] = {"method": method}
        if params is not None:
            message["params"] = _plain(params)
        await self._send(message)

    async def close(self) -> None:
        self._end_waiting("it was stopped")
        self._reader.cancel()
        await self.program.end()

    async def _call_off(self, number: int) -> None:
        with suppress(ServerFailedError, TimeoutError):
            async with asyncio.timeout(1):
                await self._send({"method": "$/cancelRequest", "params": {"id": number}})

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            if self.why_gone is not None:
                raise ServerFailedError(f"the language server is gone: {self.why_gone}.")
            try:
                await self.program.write(encode(message))
            except OSError:
                self._end_waiting("it does not read any more")
                raise ServerFailedError("the language server is gone: it does not read any more.") from None

    async def _read(self) -> None:
        decoder = Decoder()
        why = "it ended"
        try:
            while data := await self.program.read():
                for message in decoder.feed(data):
                    self._take(message)
        except (WireError, OSError) as error:
            why = str(error)
        finally:
            said = self.program.said.strip()
            if said:
                why = f"{why}; it said: {said[-300:]}"
            self._end_waiting(why)

    def _take(self, message: Mapping[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            if number is None:
                self._heard(method, message.get("params"))
            else:
                self._reply(number, method, message.get("params"))
            return
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.done():
            return
        error = message.get("error")
        if isinstance(error, Mapping):
            code = error.get("code")
            if not isinstance(code, int):
                code = 0
            waiting.set_exception(RefusedError(code, str(error.get("message", ""))))
        else:
            waiting.set_result(message.get("result"))

    def _reply(self, number: Any, method: str, params: Any) -> None:
        try:
            reply: dict[str, Any] = {"id": number, "result": self._answer(method, params)}
        except LookupError:
            reply = {"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": f"{method} is not supported"}}
        # A server that is gone needs no reply; fetching the exception keeps asyncio from reporting it.
        task = asyncio.ensure_future(self._send(reply))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _end_waiting(self, why: str) -> None:
        if self.why_gone is None:
            self.why_gone = why
            self._heard("$/gone", {})
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ServerFailedError(f"the language server is gone: {self.why_gone}."))
                # Nobody may be waiting any more; asyncio would then report an exception that nobody fetched.
                waiting.exception()


def _plain(params: Any) -> Any:
    if params is None or isinstance(params, dict | list):
        return params
    return converter().unstructure(params)


async def _structure_result(method: str, result: Any) -> Any:
    if isinstance(result, list) and len(result) > _LARGE:
        return await asyncio.to_thread(structure, method, result)
    return structure(method, result)


def structure(method: str, result: Any) -> Any:
    """Return an answer as the protocol's type. Raise ServerFailedError for another shape."""
    from lsprotocol import types

    kind = types.METHOD_TO_TYPES[method][1]
    try:
        return converter().structure({"jsonrpc": "2.0", "id": 0, "result": result}, kind).result
    except Exception as error:  # cattrs raises groups of anything
        raise ServerFailedError(f"the language server's answer to {method} is not what the protocol says.") from error


def read_notification(kind: type[types.PublishDiagnosticsParams], params: Any) -> types.PublishDiagnosticsParams | None:
    """Return the content of a notification; None for one of another shape."""
    try:
        found: types.PublishDiagnosticsParams = converter().structure(params, kind)
        return found
    except Exception:  # noqa: BLE001 - cattrs raises groups of anything
        return None


_converter: Any = None


def converter() -> Any:
    """Return the converter. The first call takes half a second: `load_library` makes it off the event loop."""
    global _converter
    if _converter is None:
        from lsprotocol.converters import get_converter

        _converter = get_converter()
    return _converter
