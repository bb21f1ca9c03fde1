"""Hooks: what users' own programs may say about events of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from retinue.core.permission import Verdict

HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "PermissionDenied",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "StopFailure",
    "SubagentSpawn",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Notification",
    "WorktreeCreate",
    "WorktreeRemove",
    "PreModelSwitch",
    "PostModelSwitch",
    "ModelRequest",
    "ModelResponse",
    "TurnStart",
    "TurnEnd",
]
"""Claude Code's names; SubagentSpawn (may veto), ModelRequest, ModelResponse, TurnStart and
TurnEnd are CodingCode's points that have no counterpart there."""


class HookResult(Struct, frozen=True):
    """All handlers of one event together: deny goes before ask, ask before allow; None is no
    opinion. `failures` name handlers that broke; where they guard something, the verdict is
    deny already."""

    verdict: Verdict | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    updated_output: str | None = None
    context: str = ""
    """Text for the model, beside the result or before the prompt; for Stop and SubagentStop the
    instruction to go on with."""
    stop: str | None = None
    """A handler wants everything stopped, for this reason."""
    messages: tuple[str, ...] = ()
    """For people."""
    output: str = ""
    """Plain standard output of the last handler (WorktreeCreate: the path)."""
    failures: tuple[str, ...] = ()
    handlers: tuple[str, ...] = field(default=())
    """The handlers that answered, for the audit."""


NO_OPINION = HookResult()


class Hooks(Protocol):
    """The hooks of one run: those of the settings and, while it runs, its file's own."""

    def listens(self, event: HookEvent) -> bool:
        """Whether any handler would be called. Cheap: asked before a payload is built."""
        ...

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        """`subject` is what matchers look at: the tool's or the agent's name, the source of a
        session. Never raises for what a handler does."""
        ...
