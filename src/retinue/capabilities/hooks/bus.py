"""The hooks of one run: handlers of the session and of the agent's own file, called by one bus.

Matchers and conditions may use the tool names of either dialect. If it is uncertain whether a guarding handler matches,
it is called. A handler is a program, a shell line, a web address or a function. If it does not answer within its
timeout, its whole process tree is ended. After the bus is closed, no handler is called and none is still running.
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
from retinue.capabilities.hooks.answer import HandlerResult, merge, read_opinion
from retinue.capabilities.hooks.sources import GUARDING_EVENTS, MATCHED_EVENTS, Dialect, Handler, fill
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
"""The limit for each output stream of a handler."""


class HandlerEnv(Struct, frozen=True):
    """The environment of the handlers of one run. `cwd` is the run's folder."""

    cwd: Path
    project: Path
    environment: Mapping[str, str]
    transport: Callable[[], Transport]
    owner: str = ""
    passed: tuple[str, ...] = ()
    """API keys that programs may see, because the user's settings pass them on."""


async def run_handler(handler: Handler, payload: Mapping[str, Any], handler_env: HandlerEnv) -> HandlerResult:
    """Return the handler's answer. Raises nothing but cancellation."""
    try:
        match handler.kind:
            case "exec" | "shell":
                return await _run_program(handler, _encode(payload), handler_env)
            case "http":
                return await _post(handler, _encode(payload), handler_env)
            case "python":
                return await _call_function(handler, payload)
            case "broken":
                return HandlerResult(failure=f"cannot be run: {handler.target}")
    except TimeoutError:
        return HandlerResult(failure=f"did not answer within {handler.seconds:g} seconds")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a handler's error must not fail the run
        return HandlerResult(failure=f"failed: {type(error).__name__}: {error}")


async def _run_program(handler: Handler, payload: bytes, handler_env: HandlerEnv) -> HandlerResult:
    project = handler.folder or handler_env.project
    variables = dict.fromkeys(("CLAUDE_PROJECT_DIR", "RETINUE_PROJECT_DIR"), str(project))
    words = [shutil.which("bash") or "/bin/sh", "-c", handler.target]
    if handler.kind == "exec":
        words = [fill(word, variables) for word in (handler.target, *handler.arguments)]
    streams: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    def receive(number: int, piece: bytes) -> None:
        stream = streams[number]
        stream += piece[: max(MAX_OUTPUT_BYTES - len(stream), 0)]

    # A file rather than a pipe: a program that does not read its input cannot block anyone.
    with tempfile.TemporaryFile(prefix="retinue-hook-") as stdin:
        stdin.write(payload)
        stdin.flush()
        stdin.seek(0)
        try:
            ended = await run_program(
                prepare(
                    words,
                    clearance="consent" if handler.folder is not None else "person",
                    environment={
                        **without_keys(handler_env.environment, handler_env.passed),
                        **variables,
                        **handler.environment,
                    },
                    # The run may have removed its own folder.
                    cwd=handler_env.cwd if handler_env.cwd.is_dir() else project,
                ),
                receive=receive,
                seconds=handler.seconds,
                merge=False,
                owner=handler_env.owner,
                stdin=stdin.fileno(),
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


async def _post(handler: Handler, payload: bytes, handler_env: HandlerEnv) -> HandlerResult:
    headers = {"content-type": "application/json"}
    for name, value in handler.headers.items():
        headers[name.lower()] = _fill_header(value, handler, handler_env.environment)
    try:
        async with asyncio.timeout(handler.seconds):
            async with await handler_env.transport().post(str(handler.target), headers, payload) as response:
                body = await response.body(MAX_OUTPUT_BYTES)
                status = response.status
    except TransportError as error:
        return HandlerResult(failure=f"cannot be reached: {error}")
    if not 200 <= status < 300:
        return HandlerResult(failure=f"answered with HTTP status {status}: {_text(body)[:300]}")
    return HandlerResult(0, _text(body))


def _fill_header(value: str, handler: Handler, environment: Mapping[str, str]) -> str:
    """Return the value of a header with its variables filled in; those that the handler may not use become empty."""

    def variable(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return environment.get(name, "") if name in handler.variables else ""

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", variable, value)


async def _call_function(handler: Handler, payload: Mapping[str, Any]) -> HandlerResult:
    """Call a function: a coroutine function on this event loop, any other in a thread. Its return value is the answer;
    None is no opinion."""
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


# Not the table of CodingCode's agent files, which lacks `todo` and has names that its hooks never see.
_CODINGCODE_NAMES: Mapping[str, str] = {
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
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"edit": ("MultiEdit", "NotebookEdit"), "Agent": ("Task",)}
_FILE_TOOLS = frozenset({"read", "write", "edit"})
_EDIT_KEYS = ("old_string", "new_string", "replace_all")
_CLAUDE_NAMES = DIALECTS["claude"].tool_names


def names_of(tool: str) -> tuple[str, ...]:
    """Return every name that a matcher may use for the tool."""
    names = (tool, _CLAUDE_NAMES.get(tool), _CODINGCODE_NAMES.get(tool), *_OTHER_NAMES.get(tool, ()))
    return tuple(filter(None, dict.fromkeys(names)))


def own_name(tool: str) -> str:
    """Return Retinue's name of a tool, which may be given by another system's name."""
    names = canonical(tool)
    return names[0] if len(names) == 1 else tool


def to_dialect(payload: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return the payload in the form that a handler of that dialect expects."""
    translated = dict(payload)
    tool, arguments = payload.get("tool_name"), payload.get("tool_input")
    if not isinstance(tool, str) or dialect == "retinue":
        return translated
    own = own_name(tool)
    if dialect == "codingcode":
        name = _CODINGCODE_NAMES.get(own, tool)
        return {**translated, "tool_name": name, "toolName": name, "input": arguments}
    translated["tool_name"] = _CLAUDE_NAMES.get(own, tool)
    if own in _FILE_TOOLS and isinstance(arguments, Mapping):
        arguments = translated["tool_input"] = dict(arguments)
        if "path" in arguments and "file_path" not in arguments:
            arguments["file_path"] = arguments.pop("path")
        if own == "edit" and isinstance(arguments.get("edits"), list):
            # A script must see every replacement, including one outside the list.
            first = {key: arguments.pop(key) for key in _EDIT_KEYS if key in arguments}
            edits = [*filter(None, [first]), *arguments.pop("edits")]
            if len(edits) == 1 and isinstance(edits[0], Mapping):
                arguments |= edits[0]
            else:
                # Claude Code's Edit takes one change; scripts expect several under this name.
                arguments["edits"], translated["tool_name"] = edits, "MultiEdit"
    return translated


def from_dialect(tool: str, arguments: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return an input that a handler of that dialect changed, with our argument names."""
    translated = dict(arguments)
    if dialect == "claude" and own_name(tool) in _FILE_TOOLS and "path" not in translated and "file_path" in translated:
        translated["path"] = translated.pop("file_path")
    return translated


Condition = Callable[[str, str, Mapping[str, Any]], bool | None]
"""Returns whether a permission rule covers a call (rule, tool, input); None if that is unknown."""


def applies_to(
    handler: Handler, event: HookEvent, subject: str, payload: Mapping[str, Any], condition: Condition
) -> bool:
    """Return whether `handler` is to be called for this event."""
    if event in MATCHED_EVENTS and not matches(handler.matcher, event, subject):
        return False
    if handler.condition is None:
        return True
    if event not in TOOL_EVENTS:
        return False
    arguments = payload.get("tool_input")
    covered = condition(handler.condition, own_name(subject), arguments if isinstance(arguments, Mapping) else {})
    return covered is True or (covered is None and event in GUARDING_EVENTS)


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
        # A guard with an invalid expression is called every time.
        return event in GUARDING_EVENTS
    names = (subject, *(names_of(own_name(subject)) if is_tool else ()))
    return any(map(expression.search, names))


def rule_condition(cwd: Path, home: str = "") -> Condition:
    """Return a condition that covers the calls that the same text would cover as a deny rule, seen from `cwd`. It
    returns None for text that is not a rule and for a command that cannot be parsed."""

    def covers(rule: str, tool: str, arguments: Mapping[str, Any]) -> bool | None:
        parsed = parse_rule(rule, "deny", base=str(cwd))
        if not isinstance(parsed, Rule) or entry_problem(rule) is not None:
            return None
        answer = restricts(parsed, JudgedCall(ToolUse(tool, arguments), RunFolders.of(cwd, (), home)))
        return None if answer == MAYBE else answer == YES

    return covers


Report = Callable[[str], None]


class HookBus:
    """Calls the handlers of one run. `identity` are the fields that every payload has. `report` is called with each
    failure of a handler; with `fail_open` a guard that fails does not deny."""

    def __init__(
        self,
        handlers: Mapping[HookEvent, tuple[Handler, ...]],
        handler_env: HandlerEnv,
        identity: Mapping[str, Any],
        *,
        fail_open: bool = False,
        outputs: Path | None = None,
        report: Report = lambda text: None,
    ) -> None:
        self._handlers = handlers
        self._handler_env = handler_env
        self._identity = identity
        self._condition = rule_condition(handler_env.cwd, handler_env.environment.get("HOME", ""))
        self._fail_open = fail_open
        self._outputs = outputs
        self._report = report
        self._detached: set[asyncio.Task[None]] = set()
        self._stored_texts = 0

    def listens(self, event: HookEvent) -> bool:
        return event in self._handlers

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        """Run all handlers that apply at the same time, identical ones once, and wait for them. Cancelling it ends
        them."""
        handlers = self._handlers.get(event)
        if not handlers:
            return NO_OPINION
        fields = {**self._identity, "hook_event_name": event, **(payload or {})}
        concerned: dict[tuple[object, ...], Handler] = {}
        for handler in handlers:
            if applies_to(handler, event, subject, fields, self._condition):
                concerned.setdefault(handler.identity, handler)
        waiting = []
        for handler in concerned.values():
            if handler.detached:
                self._detach(handler, fields)
            else:
                waiting.append(handler)
        if not waiting:
            return NO_OPINION
        # A single handler needs no separate task.
        if len(waiting) == 1:
            opinions = [await self._call_handler(waiting[0], fields)]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._call_handler(handler, fields)) for handler in waiting]
            opinions = [task.result() for task in tasks]
        result = merge(opinions, self._store_text)
        for failure in result.failures:
            self._report(failure)
        return result

    async def close(self) -> None:
        """Call no more handlers, and end those that run detached."""
        self._handlers = {}
        tasks = list(self._detached)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _call_handler(self, handler: Handler, fields: Mapping[str, Any]) -> HookResult:
        payload = to_dialect(fields, handler.dialect)
        if handler.point:
            payload["point"] = handler.point
        answer = await run_handler(handler, payload, self._handler_env)
        result = read_opinion(handler, answer)
        if result.failures and self._fail_open and handler.on_failure != "block":
            return HookResult(failures=result.failures)
        tool = fields.get("tool_name")
        if result.updated_input is not None and isinstance(tool, str):
            return replace(result, updated_input=from_dialect(tool, result.updated_input, handler.dialect))
        return result

    def _detach(self, handler: Handler, fields: Mapping[str, Any]) -> None:
        async def run() -> None:
            answer = await run_handler(handler, to_dialect(fields, handler.dialect), self._handler_env)
            if answer.failure:
                self._report(f"{handler.label} {answer.failure}")

        task = asyncio.create_task(run())
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)

    def _store_text(self, text: str) -> str | None:
        if self._outputs is None:
            return None
        with suppress(OSError):
            self._outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._stored_texts += 1
            path = self._outputs / f"hook-{self._stored_texts}.txt"
            path.write_text(text, encoding="utf-8", errors="replace")
            return str(path)
        return None
