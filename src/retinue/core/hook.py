"""Hooks: what people's own programs may say about what happens in a run.

A skill: instructions that a run gets when it needs them, with files of their own.

The words between whoever finds skills on disk, the tool that loads them and the guard that
decides what one may bring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol

from retinue.core.lean import dataclass
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


@dataclass(frozen=True, slots=True)
class HookResult:
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
    """Who had an opinion, for the audit."""


NO_OPINION = HookResult()


class Hooks(Protocol):
    """The hooks of one run: those of the settings and, while it runs, its file's own."""

    def listens(self, event: HookEvent) -> bool:
        """Whether anyone would hear it. Cheap: asked before a payload is built."""
        ...

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        """`subject` is what matchers look at: the tool's or the agent's name, the source of a
        session. Never raises for what a handler does."""
        ...


SkillSource = Literal["project", "user", "extra", "plugin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """What is known of a skill without its text. `path` is its Markdown file; `folder` is where
    its bundled files are, None for a skill that is a file of its own."""

    name: str
    path: Path
    source: SkillSource
    folder: Path | None = None
    description: str = ""
    when_to_use: str = ""
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    """Names for the words of what is given, in order."""
    allowed_tools: tuple[str, ...] = ()
    """Calls that need no question once it is loaded, if its file is trusted."""
    model_invocable: bool = True
    user_invocable: bool = True
    fork: bool = False
    """It is meant to be run by an agent of its own."""
    agent: str | None = None
    background: bool | None = None
    model: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys nobody honours."""
    problem: str = ""
    """Why it cannot be used; empty for one that can."""


class SkillLibrary(Protocol):
    """The skills a run can see. Files are looked at again whenever they may have changed."""

    def find(self, name: str) -> Skill | None: ...

    def invocable(self) -> Iterable[Skill]:
        """Those a model may load, strongest place first; of one name only the first."""
        ...

    def text(self, skill: Skill, arguments: str = "") -> str:
        """The instructions with `arguments` put in. OSError when the file went away or became
        something else."""
        ...

    def files(self, skill: Skill) -> tuple[str, ...]:
        """What is bundled with it, as paths below its folder; links are left out."""
        ...
