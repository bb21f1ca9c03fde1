"""The hooks of one run: handlers of the session and of the agent's own file, called by one bus.

Matchers and conditions may use the tool names of either dialect. A guarding handler of which it is not certain that
it matches is called. A handler is a program, a shell line, a web address or a function; it answers within its time,
or its whole process tree is ended. Once the bus is closed, no handler is called and nothing that one started goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import pkgutil
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.dialects.tables import DIALECTS
from retinue.capabilities.hooks.answer import HandlerResult, merge, opinion
from retinue.capabilities.hooks.sources import GUARDS, MATCHED, Dialect, Handler, fill
from retinue.core.hook_events import TOOL_EVENTS, is_plain, matched_names
from retinue.core.permission import NO_OPINION, HookEvent, HookResult, ToolUse
from retinue.core.programs import prepare
from retinue.core.tool_names import canonical, entry_problem
from retinue.guard.permissions.call import JudgedCall
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.match import restricts
from retinue.guard.permissions.rule import MAYBE, YES, Rule, parse_rule
from retinue.http.transport import Transport, TransportError
from retinue.models.keys import without_keys
from retinue.tools.processes import run_program

MAX_OUTPUT_BYTES = 1024 * 1024
"""Of each stream of a handler that is kept."""


class HandlerEnv(Struct, frozen=True):
    """What handlers run with. `cwd` is the run's folder."""

    cwd: Path
    project: Path
    environment: Mapping[str, str]
    transport: Callable[[], Transport]
    owner: str = ""
    passed: tuple[str, ...] = ()
    """Keys of model servers that programs get all the same, because the user passes them on."""


async def run_handler(handler: Handler, payload: Mapping[str, Any], around: HandlerEnv) -> HandlerResult:
    """Return what the handler answered. Raises nothing but cancellation."""
    try:
        match handler.kind:
            case "exec" | "shell":
                return await _program(handler, _encode(payload), around)
            case "http":
                return await _post(handler, _encode(payload), around)
            case "python":
                return await _call(handler, payload)
            case "broken":
                return HandlerResult(failure=f"cannot be run: {handler.target}")
    except TimeoutError:
        return HandlerResult(failure=f"did not answer within {handler.seconds:g} seconds")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what a handler does is its failure, never the run's
        return HandlerResult(failure=f"failed: {type(error).__name__}: {error}")


async def _program(handler: Handler, payload: bytes, around: HandlerEnv) -> HandlerResult:
    project = handler.folder or around.project
    variables = dict.fromkeys(("CLAUDE_PROJECT_DIR", "RETINUE_PROJECT_DIR"), str(project))
    words = [shutil.which("bash") or "/bin/sh", "-c", handler.target]
    if handler.kind == "exec":
        words = [fill(word, variables) for word in (handler.target, *handler.arguments)]
    streams: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    def receive(number: int, piece: bytes) -> None:
        stream = streams[number]
        stream += piece[: max(MAX_OUTPUT_BYTES - len(stream), 0)]

    # A file rather than a pipe: a program that does not read its input cannot block anyone.
    with tempfile.TemporaryFile(prefix="retinue-hook-") as given:
        given.write(payload)
        given.flush()
        given.seek(0)
        try:
            ended = await run_program(
                prepare(
                    words,
                    clearance="consent" if handler.folder is not None else "person",
                    environment={
                        **without_keys(around.environment, around.passed),
                        **variables,
                        **handler.environment,
                    },
                    # The run may have removed its own folder.
                    cwd=around.cwd if around.cwd.is_dir() else project,
                ),
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
    if len(streams[1]) >= MAX_OUTPUT_BYTES:
        return HandlerResult(failure=f"said more than {MAX_OUTPUT_BYTES // 1024} KiB")
    return HandlerResult(ended.code, _text(streams[1]), _text(streams[2]))


async def _post(handler: Handler, payload: bytes, around: HandlerEnv) -> HandlerResult:
    headers = {"content-type": "application/json"}
    for name, value in handler.headers.items():
        headers[name.lower()] = _fill_in(value, handler, around.environment)
    try:
        async with asyncio.timeout(handler.seconds):
            async with await around.transport().post(str(handler.target), headers, payload) as response:
                body = await response.body(MAX_OUTPUT_BYTES)
                status = response.status
    except TransportError as error:
        return HandlerResult(failure=f"cannot be reached: {error}")
    if not 200 <= status < 300:
        return HandlerResult(failure=f"answered with HTTP status {status}: {_text(body)[:300]}")
    return HandlerResult(0, _text(body))


def _fill_in(value: str, handler: Handler, environment: Mapping[str, str]) -> str:
    """Fill in the variables that the handler may name in a header; others become empty."""

    def fill(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return environment.get(name, "") if name in handler.variables else ""

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", fill, value)


async def _call(handler: Handler, payload: Mapping[str, Any]) -> HandlerResult:
    """Call a function: a coroutine function on this event loop, any other in a thread. Its value
    is the answer; None is no opinion."""
    function = handler.target
    if not callable(function):
        function = pkgutil.resolve_name(str(function))
        if not callable(function):
            raise TypeError(f"{handler.target} cannot be called")
    async with asyncio.timeout(handler.seconds):
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        value = await function(dict(payload)) if is_async else await asyncio.to_thread(function, dict(payload))
        if inspect.isawaitable(value):
            value = await value
    return HandlerResult(0, value) if isinstance(value, str) else HandlerResult(0, data=value)


def _encode(payload: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(payload, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        # orjson refuses half a surrogate pair and numbers beyond 64 bits.
        return json.dumps(payload, default=str).encode()


def _text(data: bytes | bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")


# Not the table of CodingCode's agent files: that lacks `todo` and has names under which its hooks hear of no call.
_CODINGCODE: Mapping[str, str] = {
    "read": "read_file",
    "write": "write_file",
    "edit": "edit_file",
    "bash": "execute_command",
    "grep": "search_code",
    "find": "search_files",
    "fetch_content": "fetch_url",
    "web_search": "web_search",
    "todo": "todo_write",
    "dispatch_agent": "dispatch_agent",
}
_OTHERS: Mapping[str, tuple[str, ...]] = {"edit": ("MultiEdit", "NotebookEdit"), "Agent": ("Task",)}
_FILES = frozenset({"read", "write", "edit"})
_REPLACEMENT = ("old_string", "new_string", "replace_all")
_CLAUDE = DIALECTS["claude"].tool_names


def names_of(tool: str) -> tuple[str, ...]:
    """Return every name under which a matcher may know the tool."""
    known = (tool, _CLAUDE.get(tool), _CODINGCODE.get(tool), *_OTHERS.get(tool, ()))
    return tuple(filter(None, dict.fromkeys(known)))


def own_name(tool: str) -> str:
    """Return Retinue's name of a tool that another system may have named."""
    found = canonical(tool)
    return found[0] if len(found) == 1 else tool


def to_dialect(payload: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return the payload as a handler of that dialect expects it."""
    translated = dict(payload)
    tool, arguments = payload.get("tool_name"), payload.get("tool_input")
    if not isinstance(tool, str) or dialect == "retinue":
        return translated
    own = own_name(tool)
    if dialect == "codingcode":
        name = _CODINGCODE.get(own, tool)
        return {**translated, "tool_name": name, "toolName": name, "input": arguments}
    translated["tool_name"] = _CLAUDE.get(own, tool)
    if own in _FILES and isinstance(arguments, Mapping):
        arguments = translated["tool_input"] = dict(arguments)
        if "path" in arguments and "file_path" not in arguments:
            arguments["file_path"] = arguments.pop("path")
        if own == "edit" and isinstance(arguments.get("edits"), list):
            # A script must see every replacement, also one beside the list.
            first = {key: arguments.pop(key) for key in _REPLACEMENT if key in arguments}
            edits = [*filter(None, [first]), *arguments.pop("edits")]
            if len(edits) == 1 and isinstance(edits[0], Mapping):
                arguments |= edits[0]
            else:
                # Claude Code's Edit takes one change; scripts expect several under this name.
                arguments["edits"], translated["tool_name"] = edits, "MultiEdit"
    return translated


def from_dialect(tool: str, arguments: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return an input that a handler of that dialect changed, with the argument names of our tool."""
    translated = dict(arguments)
    if dialect == "claude" and own_name(tool) in _FILES and "path" not in translated and "file_path" in translated:
        translated["path"] = translated.pop("file_path")
    return translated


Condition = Callable[[str, str, Mapping[str, Any]], bool | None]
"""Whether a permission rule covers a call (rule, tool, input); None if that cannot be said."""


def hears(handler: Handler, event: HookEvent, subject: str, payload: Mapping[str, Any], condition: Condition) -> bool:
    """Return whether `handler` is to be called for this event."""
    if event in MATCHED and not matches(handler.matcher, event, subject):
        return False
    if handler.condition is None:
        return True
    if event not in TOOL_EVENTS:
        return False
    arguments = payload.get("tool_input")
    covered = condition(handler.condition, own_name(subject), arguments if isinstance(arguments, Mapping) else {})
    return covered is True or (covered is None and event in GUARDS)


@lru_cache(maxsize=1024)
def matches(matcher: str, event: HookEvent, subject: str) -> bool:
    """Return whether a matcher covers `subject`. An empty matcher and `*` cover everything; names and lists
    of names match exactly, under any name of the tool; everything else is a regular expression that may match
    anywhere."""
    text = matcher.strip()
    if text in ("", "*"):
        return True
    is_tool = event in TOOL_EVENTS
    if is_plain(text):
        words = matched_names(text)
        return any(word == subject or (is_tool and own_name(subject) in canonical(word)) for word in words)
    try:
        expression = re.compile(text)
    except re.error:
        # A guard that cannot be read is called every time.
        return event in GUARDS
    names = (subject, *(names_of(own_name(subject)) if is_tool else ()))
    return any(map(expression.search, names))


def rule_condition(cwd: Path, home: str = "") -> Condition:
    """Return a condition that judges as a deny rule of the same words would, from `cwd`. The answer is None for
    a text that is no rule, and for a command that cannot be taken apart."""

    def covers(rule: str, tool: str, given: Mapping[str, Any]) -> bool | None:
        parsed = parse_rule(rule, "deny", base=str(cwd))
        if not isinstance(parsed, Rule) or entry_problem(rule) is not None:
            return None
        answer = restricts(parsed, JudgedCall(ToolUse(tool, given), RunFolders.of(cwd, (), home)))
        return None if answer == MAYBE else answer == YES

    return covers


Report = Callable[[str], None]


class HookBus:
    """Calls the handlers of one run. `who` are the fields of every payload. `report` is told of handlers that
    broke; `fail_open` lets things happen although a guard broke."""

    def __init__(
        self,
        handlers: Mapping[HookEvent, tuple[Handler, ...]],
        around: HandlerEnv,
        who: Mapping[str, Any],
        *,
        fail_open: bool = False,
        outputs: Path | None = None,
        report: Report = lambda text: None,
    ) -> None:
        self._handlers = handlers
        self._around = around
        self._who = who
        self._condition = rule_condition(around.cwd, around.environment.get("HOME", ""))
        self._fail_open = fail_open
        self._outputs = outputs
        self._report = report
        self._detached: set[asyncio.Task[None]] = set()
        self._spilled = 0

    def listens(self, event: HookEvent) -> bool:
        return event in self._handlers

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        """Run every handler concerned at the same time, identical ones once, and wait for
        all of them. Cancelling it ends them."""
        handlers = self._handlers.get(event)
        if not handlers:
            return NO_OPINION
        said = {**self._who, "hook_event_name": event, **(payload or {})}
        concerned: dict[tuple[object, ...], Handler] = {}
        for each in handlers:
            if hears(each, event, subject, said, self._condition):
                concerned.setdefault(each.identity, each)
        waiting = []
        for handler in concerned.values():
            if handler.detached:
                self._detach(handler, said)
            else:
                waiting.append(handler)
        if not waiting:
            return NO_OPINION
        # A single handler needs no task of its own.
        if len(waiting) == 1:
            opinions = [await self._ask(waiting[0], said)]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(handler, said)) for handler in waiting]
            opinions = [task.result() for task in tasks]
        result = merge(opinions, self._spill)
        for failure in result.failures:
            self._report(failure)
        return result

    async def close(self) -> None:
        """Call no handler any more, and end those that nobody waited for."""
        self._handlers = {}
        tasks = list(self._detached)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, handler: Handler, said: Mapping[str, Any]) -> HookResult:
        payload = to_dialect(said, handler.dialect)
        if handler.point:
            payload["point"] = handler.point
        answer = await run_handler(handler, payload, self._around)
        result = opinion(handler, answer)
        if result.failures and self._fail_open and handler.on_failure != "block":
            return HookResult(failures=result.failures)
        tool = said.get("tool_name")
        if result.updated_input is not None and isinstance(tool, str):
            return replace(result, updated_input=from_dialect(tool, result.updated_input, handler.dialect))
        return result

    def _detach(self, handler: Handler, said: Mapping[str, Any]) -> None:
        async def run() -> None:
            answer = await run_handler(handler, to_dialect(said, handler.dialect), self._around)
            if answer.failure:
                self._report(f"{handler.label} {answer.failure}")

        task = asyncio.create_task(run())
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)

    def _spill(self, text: str) -> str | None:
        if self._outputs is None:
            return None
        with suppress(OSError):
            self._outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._spilled += 1
            path = self._outputs / f"hook-{self._spilled}.txt"
            path.write_text(text, encoding="utf-8", errors="replace")
            return str(path)
        return None
