"""The events: which guard something, what matchers look at, how long handlers may take.

CodingCode's points are mapped onto Claude Code's events, so that there is one bus.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from retinue.core.hook import HookEvent

EVENTS: frozenset[str] = frozenset(get_args(HookEvent))

GUARDS: frozenset[HookEvent] = frozenset(
    {"PreToolUse", "PermissionRequest", "SubagentSpawn", "UserPromptSubmit", "PreModelSwitch"}
)
"""Where a handler that breaks has to count as a no."""

STRICT: frozenset[HookEvent] = GUARDS | {"WorktreeCreate"}

TOOLS: frozenset[HookEvent] = frozenset(
    {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "PermissionDenied"}
)
"""Events about one tool call: matchers and conditions look at the tool."""

MATCHED: frozenset[HookEvent] = TOOLS | {
    "SessionStart",
    "SessionEnd",
    "StopFailure",
    "SubagentSpawn",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Notification",
    "PreModelSwitch",
    "PostModelSwitch",
}
"""Events with something to match; on the others a matcher is ignored."""

SPEAKS: frozenset[HookEvent] = frozenset({"UserPromptSubmit", "SessionStart"})
"""Events where plain output is text for the model."""

ENDS: frozenset[HookEvent] = frozenset({"Stop", "SubagentStop"})
"""Events where a no means: go on."""

BLOCKABLE: frozenset[HookEvent] = GUARDS | ENDS | {"PostToolUse", "PreCompact", "WorktreeCreate"}
"""Events where exit code 2 and `block` mean something."""

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

DECISIONS = frozenset({"tool.approval.pre", "agent.turn.stop", "agent.subagent.spawn.before"})
"""Points whose handlers decide unless they say that they only observe."""

_SECONDS = 600.0
_POINT_SECONDS = 30.0
_BY_EVENT: Mapping[HookEvent, float] = {"UserPromptSubmit": 30.0, "SessionEnd": 1.5}


def events_of(name: str) -> tuple[HookEvent, ...] | None:
    """The events that a name in a file means; None for one that nobody knows."""
    if name in EVENTS:
        return (name,)  # type: ignore[return-value]  # the line above is the check
    return POINTS.get(name)


def default_seconds(event: HookEvent, *, point: bool) -> float:
    """How long a handler may take when it does not say. `point`: it is CodingCode's."""
    return _BY_EVENT.get(event, _POINT_SECONDS if point else _SECONDS)
