"""Running one handler: a program, a shell line, a web address, a function.

However it goes, the answer comes within the handler's time, and no process of it is left: time
that is up and a cancelled caller end the whole tree of a program.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from retinue.capabilities.hooks.answer import HandlerResult
from retinue.capabilities.hooks.handler import Handler
from retinue.http.transport import Transport
from retinue.models.keys import without_keys

MOST_BYTES = 1024 * 1024
"""Of each stream of a handler that is kept."""


class HandlerEnd(Protocol):
    @property
    def code(self) -> int | None: ...

    @property
    def timed_out(self) -> bool: ...


class Starter(Protocol):
    """Starts a program, passes on its output, and ends everything it started."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        receive: Callable[[int, bytes], None],
        seconds: float | None,
        merge: bool,
        owner: str,
        stdin: int,
    ) -> HandlerEnd: ...


class HandlerEnv(Struct, frozen=True):
    """What handlers run with. `cwd` is the run's folder."""

    cwd: Path
    project: Path
    environment: Mapping[str, str]
    start: Starter
    transport: Callable[[], Transport]
    owner: str = ""
    passed: tuple[str, ...] = ()
    """Keys of model servers that programs get all the same, because the user passes them on."""


async def run_handler(handler: Handler, payload: Mapping[str, Any], around: HandlerEnv) -> HandlerResult:
    """Return what the handler answered. Raises nothing but cancellation."""
    try:
        match handler.kind:
            case "exec" | "shell":
                return await _program(handler, _encoded(payload), around)
            case "http":
                return await _post(handler, _encoded(payload), around)
            case "python":
                return await _call(handler, payload)
            case "broken":
                return HandlerResult(failure=f"cannot be run: {handler.target}")
    except TimeoutError:
        return HandlerResult(failure=f"did not answer within {handler.seconds:g} seconds")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what a handler does is its failure, never the run's
        return HandlerResult(failure=f"failed: {type(error).__name__}: {error}")


async def _program(handler: Handler, payload: bytes, around: HandlerEnv) -> HandlerResult:
    project = str(handler.folder or around.project)
    environment = {
        **without_keys(around.environment, around.passed),
        "CLAUDE_PROJECT_DIR": project,
        "RETINUE_PROJECT_DIR": project,
        **handler.environment,
    }
    streams: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    def receive(number: int, piece: bytes) -> None:
        stream = streams[number]
        stream += piece[: max(MOST_BYTES - len(stream), 0)]

    cwd = around.cwd
    if not cwd.is_dir():
        cwd = Path(project)  # the run may have removed its own folder
    # A file rather than a pipe: a program that does not read its input cannot block anyone.
    with tempfile.TemporaryFile(prefix="retinue-hook-") as given:
        given.write(payload)
        given.flush()
        given.seek(0)
        try:
            ended = await around.start(
                _argv(handler, project),
                cwd=cwd,
                environment=environment,
                receive=receive,
                seconds=handler.seconds,
                merge=False,
                owner=around.owner,
                stdin=given.fileno(),
            )
        except (OSError, ValueError) as error:
            return HandlerResult(failure=f"cannot be started: {getattr(error, 'strerror', None) or error}")
    if ended.timed_out:
        return HandlerResult(failure=f"did not answer within {handler.seconds:g} seconds and was ended")
    if ended.code is None or ended.code < 0:
        return HandlerResult(failure=f"was ended by signal {-(ended.code or 0)}")
    if len(streams[1]) >= MOST_BYTES:
        return HandlerResult(failure=f"said more than {MOST_BYTES // 1024} KiB")
    return HandlerResult(ended.code, _text(streams[1]), _text(streams[2]))


def _argv(handler: Handler, project: str) -> list[str]:
    if handler.kind == "shell":
        return [shutil.which("bash") or "/bin/sh", "-c", handler.target]
    words = [str(handler.target), *handler.arguments]
    for name in ("CLAUDE_PROJECT_DIR", "RETINUE_PROJECT_DIR"):
        words = [word.replace(f"${{{name}}}", project) for word in words]
    return words


async def _post(handler: Handler, payload: bytes, around: HandlerEnv) -> HandlerResult:
    from retinue.http.transport import TransportError

    headers = {"content-type": "application/json"}
    headers |= {name.lower(): _filled(value, handler, around.environment) for name, value in handler.headers.items()}
    try:
        async with asyncio.timeout(handler.seconds):
            async with await around.transport().post(str(handler.target), headers, payload) as response:
                body = await response.body(MOST_BYTES)
                status = response.status
    except TransportError as error:
        return HandlerResult(failure=f"cannot be reached: {error}")
    if not 200 <= status < 300:
        return HandlerResult(failure=f"answered with HTTP status {status}: {_text(body)[:300]}")
    return HandlerResult(0, _text(body))


def _filled(value: str, handler: Handler, environment: Mapping[str, str]) -> str:
    """Fill in the variables that the handler may name in a header; others become empty."""
    import re

    def fill(found: re.Match[str]) -> str:
        name = found.group(1) or found.group(2)
        return environment.get(name, "") if name in handler.variables else ""

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", fill, value)


async def _call(handler: Handler, payload: Mapping[str, Any]) -> HandlerResult:
    """Call a function: a coroutine function on this event loop, any other in a thread. Its value
    is the answer; None is no opinion."""
    import inspect

    function = handler.target
    if not callable(function):
        function = _import_function(str(function))
    async with asyncio.timeout(handler.seconds):
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        given = dict(payload)
        if is_async:
            value = await function(given)
        else:
            value = await asyncio.to_thread(function, given)
        if inspect.isawaitable(value):
            value = await value
    if isinstance(value, str):
        return HandlerResult(0, value)
    return HandlerResult(0, data=value)


def _import_function(name: str) -> Callable[..., Any]:
    import importlib

    module, _, attribute = name.partition(":")
    function: Any = importlib.import_module(module)
    for part in attribute.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(f"{name} cannot be called")
    found: Callable[..., Any] = function
    return found


def _encoded(payload: Mapping[str, Any]) -> bytes:
    import orjson

    try:
        return orjson.dumps(payload, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):  # half a surrogate pair, numbers beyond 64 bits
        import json

        return json.dumps(payload, default=str).encode()


def _text(data: bytes | bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")
