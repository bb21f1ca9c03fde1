"""The names of hook events in files. CodingCode's points are mapped onto Claude Code's events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from retinue.core.permission import HookEvent

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
"""CodingCode's points. There is no plan here to be ready, so nobody hears of that."""


def events_of(name: str) -> tuple[HookEvent, ...] | None:
    """Return the events that a name in a file means; None for an unknown name."""
    if name in EVENTS:
        return (name,)  # type: ignore[return-value]  # the line above is the check
    return POINTS.get(name)
