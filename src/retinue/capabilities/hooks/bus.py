"""The hooks of one run: handlers of the session and of the agent's own file, on one bus.

Matchers and conditions are in the words of either dialect. Where it is in doubt whether a guarding
handler matches, it runs.

A bus belongs to one run, so the hooks of an agent's file apply to that run only. Once the bus is
closed, no handler is called and nothing that it started goes on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.capabilities.hooks.answer import merged, opinion
from retinue.capabilities.hooks.handler import GUARDS, MATCHED, TOOLS, Handler
from retinue.capabilities.hooks.run import HandlerEnv, run_handler
from retinue.capabilities.hooks.session import names_of, own_name, spoken, understood
from retinue.core.permission import NO_OPINION, HookEvent, HookResult, ToolUse
from retinue.core.toolnames import canonical

Condition = Callable[[str, str, Mapping[str, Any]], bool | None]
"""Whether a permission rule covers a call (rule, tool, input); None if that cannot be said."""

_PLAIN = re.compile(r"[A-Za-z0-9_\- ,|]*\Z")


def hears(handler: Handler, event: HookEvent, subject: str, payload: Mapping[str, Any], condition: Condition) -> bool:
    """Return whether `handler` is to be called for this event."""
    if event in MATCHED and not matches(handler.matcher, event, subject):
        return False
    if handler.condition is None:
        return True
    if event not in TOOLS:
        return False
    given = payload.get("tool_input")
    if not isinstance(given, Mapping):
        given = {}
    covered = condition(handler.condition, own_name(subject), given)
    return covered is True or (covered is None and event in GUARDS)


@lru_cache(maxsize=1024)
def matches(matcher: str, event: HookEvent, subject: str) -> bool:
    """Return whether a matcher covers `subject`. An empty matcher and `*` cover everything; names and lists
    of names match exactly, under any name of the tool; everything else is a regular expression that may match
    anywhere."""
    text = matcher.strip()
    if text in ("", "*"):
        return True
    tool = event in TOOLS
    if _PLAIN.match(text):
        wanted = [word.strip() for word in re.split(r"[|,]", text) if word.strip()]
        return any(word == subject or (tool and own_name(subject) in canonical(word)) for word in wanted)
    try:
        expression = re.compile(text)
    except re.error:
        return event in GUARDS  # a guard that cannot be read must not vanish
    names = {subject}
    if tool:
        names.update(names_of(own_name(subject)))
    return any(expression.search(name) for name in names)


def rule_condition(cwd: Path, home: str = "") -> Condition:
    """Return a condition that judges as a deny rule of the same words would, from `cwd`. The answer is None for
    what is no rule, and for a command that cannot be taken apart."""

    def covers(rule: str, tool: str, given: Mapping[str, Any]) -> bool | None:
        from retinue.guard.permissions.call import JudgedCall
        from retinue.guard.permissions.locations import RunFolders
        from retinue.guard.permissions.match import restricts
        from retinue.guard.permissions.rule import MAYBE, YES, Rule, parse_rule

        parsed = parse_rule(rule, "deny", base=str(cwd))
        if not isinstance(parsed, Rule):
            return None
        found = restricts(parsed, JudgedCall(ToolUse(tool, given), RunFolders.of(cwd, (), home)))
        if found == MAYBE:
            return None
        return found == YES

    return covers


Report = Callable[[str], None]


def grouped(handlers: Iterable[Handler]) -> dict[HookEvent, tuple[Handler, ...]]:
    """Return handlers by event, the lowest priority number first; equal numbers keep their order."""
    found: dict[HookEvent, list[Handler]] = {}
    for handler in sorted(handlers, key=lambda each: each.priority):
        found.setdefault(handler.event, []).append(handler)
    return {event: tuple(each) for event, each in found.items()}


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
        if len(waiting) == 1:
            opinions = [await self._ask(waiting[0], said)]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(handler, said)) for handler in waiting]
            opinions = [task.result() for task in tasks]
        result = merged(opinions, self._spill)
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
        payload = spoken(said, handler.dialect)
        if handler.point:
            payload["point"] = handler.point
        answer = await run_handler(handler, payload, self._around)
        result = opinion(handler, answer)
        if result.failures and self._fail_open and handler.on_failure != "block":
            return HookResult(failures=result.failures)
        tool = said.get("tool_name")
        if result.updated_input is not None and isinstance(tool, str):
            return replace(result, updated_input=understood(tool, result.updated_input, handler.dialect))
        return result

    def _detach(self, handler: Handler, said: Mapping[str, Any]) -> None:
        async def run() -> None:
            answer = await run_handler(handler, spoken(said, handler.dialect), self._around)
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
