"""The names of hook events in files, and what their matchers may say. CodingCode's points are mapped onto Claude
Code's events."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import get_args

from retinue.core.permission import HookEvent
from retinue.core.tool_names import EntryProblem, canonical, entry_problem, misspelt_tool, off_by_one, split_entries

EVENTS: frozenset[str] = frozenset(get_args(HookEvent))

POINTS: Mapping[str, tuple[HookEvent, ...]] = {
    "tool.execute.before": ("PreToolUse",),
    "tool.execute.after": ("PostToolUse",),
    "tool.execute.error": ("PostToolUseFailure",),
    "tool.execute.denied": ("PermissionDenied",),
    "tool.approval.pre": ("PreToolUse",),
    "tool.approval.post": ("PostToolUse", "PostToolUseFailure", "PermissionDenied"),
    "llm.request.before": ("ModelRequest",),
    "llm.response.after": ("ModelResponse",),
    "llm.response.error": ("StopFailure",),
    "session.save.before": ("TurnEnd",),
    "session.save.after": ("TurnEnd",),
    "agent.turn.start": ("TurnStart",),
    "agent.step.before": ("ModelRequest",),
    "agent.turn.stop": ("Stop", "SubagentStop"),
    "agent.turn.end": ("TurnEnd",),
    "agent.subagent.spawn.before": ("SubagentSpawn",),
    "agent.subagent.spawn.after": ("SubagentStart",),
    "agent.subagent.complete": ("SubagentStop",),
    "plan.ready": (),
}
"""CodingCode's points. There is no such plan here, so `plan.ready` never happens."""


CLAUDE_ONLY_EVENTS = frozenset(
    {
        *("ConfigChange", "CwdChanged", "Elicitation", "ElicitationResult", "FileChanged", "InstructionsLoaded"),
        *("PostToolBatch", "Setup", "TaskCompleted", "TaskCreated", "TeammateIdle", "UserPromptExpansion"),
    }
)
"""Events of Claude Code that never happen here, so that their handlers guard nothing."""

TOOL_EVENTS: frozenset[HookEvent] = frozenset(
    {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "PermissionDenied"}
)
"""Events about one tool call: matchers and conditions look at the tool."""


def meant_event(name: str) -> str | None:
    """Return the event or point that is most similar to an unknown name."""
    from difflib import get_close_matches

    events = {event.lower(): event for event in (*EVENTS, *POINTS)}
    lowered = name.strip().lower()
    for spelling, event in events.items():
        if lowered == spelling or off_by_one(lowered, spelling):
            return event
    near = get_close_matches(lowered, events, n=1, cutoff=0.8)
    return events[near[0]] if near else None


_EXPRESSION = frozenset(".*+?^$()[]{}\\")
_WORD = re.compile(r"[A-Za-z]\w+")
_EXCEPT = "(?!"


def is_plain(matcher: str) -> bool:
    """Return whether a matcher is a list of names, and not an expression."""
    return _EXPRESSION.isdisjoint(matcher)


def matched_names(matcher: str) -> tuple[str, ...]:
    """Return the names in a plain matcher."""
    return split_entries(matcher.replace("|", ",").replace(";", ","))


def matcher_problem(matcher: str) -> EntryProblem | None:
    """Return why a matcher of tools cannot be understood: its handler would not be called for the intended tools."""
    if matcher.strip() in ("", "*"):
        return None
    if is_plain(matcher):
        return next(filter(None, map(entry_problem, matched_names(matcher))), None)
    try:
        # A bracket inside of brackets, as in `[[]`, is literal.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            expression = re.compile(matcher, re.IGNORECASE)
    except re.error:
        return None  # the handler is then called for every tool
    if _EXCEPT in matcher:
        return None
    for word in _WORD.findall(matcher):
        # Every word that is a tool, or almost one, is meant to match.
        meant = word if canonical(word) else misspelt_tool(word)
        if meant is not None and not expression.search(meant):
            return EntryProblem(f"never matches '{meant}'", "Write 'Bash|Write', or a regular expression.")
    return None


def events_of(name: str) -> tuple[HookEvent, ...] | None:
    """Return the events that a name in a file means; None for an unknown name."""
    if name in EVENTS:
        return (name,)  # type: ignore[return-value]  # the line above is the check
    return POINTS.get(name)
