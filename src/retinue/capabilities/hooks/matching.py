"""Who hears an event: matchers in the words of either dialect, and conditions.

Where it is in doubt whether a guard should run, it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from retinue.capabilities.hooks.handler import Handler
from retinue.capabilities.hooks.points import GUARDS, MATCHED, TOOLS
from retinue.capabilities.hooks.vocabulary import names_of, own_name
from retinue.core.hook import HookEvent
from retinue.core.permission import ToolUse
from retinue.core.toolnames import canonical

Condition = Callable[[str, str, Mapping[str, Any]], bool | None]
"""Whether a permission rule covers a call (rule, tool, input); None if that cannot be said."""

_PLAIN = re.compile(r"[A-Za-z0-9_\- ,|]*\Z")


def hears(handler: Handler, event: HookEvent, subject: str, payload: Mapping[str, Any], condition: Condition) -> bool:
    """Whether `handler` is concerned by this event."""
    if event in MATCHED and not matches(handler.matcher, event, subject):
        return False
    if handler.condition is None:
        return True
    if event not in TOOLS:
        return False
    given = payload.get("tool_input")
    covered = condition(handler.condition, own_name(subject), given if isinstance(given, Mapping) else {})
    return covered is True or (covered is None and event in GUARDS)


@lru_cache(maxsize=1024)
def matches(matcher: str, event: HookEvent, subject: str) -> bool:
    """Nothing and `*` match all; names and lists of them match exactly, under any name of the
    tool; everything else is a regular expression that may match anywhere."""
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
        return event in GUARDS
    names = {subject, *names_of(own_name(subject))} if tool else {subject}
    return any(expression.search(name) for name in names)


def rule_condition(cwd: Path, home: str = "") -> Condition:
    """Conditions judged as a deny rule of the same words would be, from `cwd`. What is no rule,
    and a command that cannot be taken apart, is in doubt."""

    def covers(rule: str, tool: str, given: Mapping[str, Any]) -> bool | None:
        from retinue.guard.permissions.call import Call
        from retinue.guard.permissions.locations import Place
        from retinue.guard.permissions.matching import restricts
        from retinue.guard.permissions.rule import MAYBE, YES, Rule, parse_rule

        parsed = parse_rule(rule, "deny", base=str(cwd))
        if not isinstance(parsed, Rule):
            return None
        found = restricts(parsed, Call(ToolUse(tool, given), Place.of(cwd, (), home)))
        return True if found == YES else None if found == MAYBE else False

    return covers
