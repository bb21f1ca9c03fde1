"""JSON-RPC 2.0 on lines, in both directions: requests, answers, notifications, and cancelled requests."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Mapping
from itertools import count
from typing import Any, Protocol

import msgspec

from retinue.core.encode import plain
from retinue.errors import RetinueError, UnknownItemError, UnknownRunError, UsageError
from retinue.frontends.acp.pipes import LinePipes, TooLongLine

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32800
AUTHENTICATION_REQUIRED = -32000
NOT_FOUND = -32002

Id = str | int | None
_encode = msgspec.json.Encoder().encode


class RpcError(Exception):
    """The error with which we answer a request, or with which the other side answered ours."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            document["data"] = self.data
        return document


class RpcHandler(Protocol):
    """Handles the requests and notifications of the other side."""

    async def request(self, method: str, params: Mapping[str, Any], request_id: Id) -> Mapping[str, Any]:
        """Return the result, or raise RpcError or RetinueError. Cancelled if the other side cancels the request."""
        ...

    async def notification(self, method: str, params: Mapping[str, Any]) -> None: ...


class RpcConnection:
    """The connection to one client. `serve` returns when the client has closed the pipe."""

    def __init__(self, pipes: LinePipes, methods: RpcHandler) -> None:
        self._pipes = pipes
        self._methods = methods
        self._asked: dict[str | int, asyncio.Future[Any]] = {}
        self._working: dict[Id, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._numbers = count(1)

    async def serve(self) -> None:
        """Handle incoming messages. Requests overlap, and start in the order of their arrival."""
        async for line in self._pipes.lines():
            if isinstance(line, TooLongLine):
                self._fail(None, RpcError(INVALID_REQUEST, "The line is too long and was skipped."))
            elif line.strip():
                self._take(line)
        for task in (*self._working.values(), *self._others):
            task.cancel()
        for future in self._asked.values():
            future.cancel()

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification to the client."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request to the client and return its result. Raise RpcError for an error. If the call is cancelled,
        the client is told to cancel the request, and its answer is ignored."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            if number in self._asked:
                self.notify("$/cancel_request", {"requestId": number})
            raise
        finally:
            self._asked.pop(number, None)

    async def drain(self) -> None:
        """Wait while the backlog of a slow client is too large."""
        await self._pipes.drain()

    def cancel_request(self, request_id: Id) -> None:
        """Cancel a request of the client that is in progress."""
        task = self._working.get(request_id)
        if task is not None:
            task.cancel()

    # Incoming messages

    def _take(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._fail(None, RpcError(PARSE_ERROR, "This is not JSON."))
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._fail(None, RpcError(INVALID_REQUEST, "This is not a JSON-RPC 2.0 object."))
            return
        request_id = message.get("id")
        if not isinstance(request_id, (str, int, type(None))) or isinstance(request_id, bool):
            self._fail(None, RpcError(INVALID_REQUEST, "`id` must be a text or a whole number."))
        elif "method" not in message:
            self._take_answer(request_id, message)
        elif not isinstance(message["method"], str) or not isinstance(message.get("params") or {}, dict):
            self._fail(request_id, RpcError(INVALID_REQUEST, "`method` must be a text and `params` an object."))
        else:
            self._begin(message["method"], message.get("params") or {}, request_id, "id" in message)

    def _begin(self, method: str, params: Mapping[str, Any], request_id: Id, is_request: bool) -> None:
        if is_request and request_id in self._working:
            self._fail(request_id, RpcError(INVALID_REQUEST, "A request with this id is being worked on."))
        elif is_request:
            self._working[request_id] = asyncio.create_task(self._answer(method, params, request_id))
        else:
            task = asyncio.create_task(self._handle_notification(method, params))
            self._others.add(task)
            task.add_done_callback(self._others.discard)

    def _take_answer(self, request_id: Id, message: Mapping[str, Any]) -> None:
        future = self._asked.pop(request_id, None) if request_id is not None else None
        if future is None or future.done():
            # An answer to a cancelled or unknown request.
            return
        error = message.get("error")
        if error is None:
            future.set_result(message.get("result"))
        else:
            details = error if isinstance(error, dict) else {}
            code = details.get("code")
            future.set_exception(RpcError(code if isinstance(code, int) else 0, str(details.get("message") or error)))

    async def _answer(self, method: str, params: Mapping[str, Any], request_id: Id) -> None:
        try:
            result = await _guarded(self._methods.request(method, params, request_id))
        except RpcError as error:
            self._fail(request_id, error)
        except asyncio.CancelledError:
            self._fail(request_id, RpcError(CANCELLED, "The request was cancelled."))
        else:
            self._send({"jsonrpc": "2.0", "id": request_id, "result": result})
        finally:
            self._working.pop(request_id, None)

    async def _handle_notification(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            await _guarded(self._methods.notification(method, params))
        except RpcError as error:
            # Nobody waits for an answer to a notification.
            sys.stderr.write(f"retinue acp: {method}: {error.message}\n")

    def _fail(self, request_id: Id, error: RpcError) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "error": error.as_dict()})

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            line = _encode(message)
        except (TypeError, ValueError, OverflowError):
            line = _encode(plain(message))
        self._pipes.send(line)


async def _guarded(work: Awaitable[Any]) -> Any:
    """Await `work`, and convert every error to one of the protocol."""
    try:
        return await work
    except (RpcError, asyncio.CancelledError):
        raise
    except RetinueError as error:
        raise RpcError(_code_of(error), str(error), {"code": error.code}) from error
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        raise RpcError(INTERNAL_ERROR, f"A defect of Retinue: {type(error).__name__}: {error}") from error


def _code_of(error: RetinueError) -> int:
    if isinstance(error, (UnknownRunError, UnknownItemError)):
        return NOT_FOUND
    if isinstance(error, UsageError):
        return INVALID_PARAMS
    return INTERNAL_ERROR
