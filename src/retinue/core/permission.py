"""Who decides about a tool call: its effects, the guard's decision, people through the inbox, and hooks.

Policy works on effects, never on tool names. An inbox item (approval, question or quote) is answered
exactly once. Hooks are users' own programs that are asked about events of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from retinue.core.delegation import LIVE, State
from retinue.core.spec import PermissionMode
from retinue.core.value import Tagged

EffectKind = Literal["read", "write", "execute", "network", "spawn", "ask"]
"""read: files of the workspace. write: changes files. execute: runs programs (may do anything
the sandbox lets it). network: talks to other hosts. spawn: starts runs. ask: needs a person."""

READ_ONLY: frozenset[EffectKind] = frozenset({"read", "network", "ask"})

EffectStatus = Literal["started", "finished", "failed", "unknown"]


class TouchedPath(Struct, frozen=True):
    """`before` and `after` are content hashes (sha256, hex); None where there was no file."""

    path: str
    before: str | None = None
    after: str | None = None


class ToolEffect(Tagged, frozen=True, tag="effect"):
    """`unknown` is what recovery records for a call that started and never reported back.
    `denied` says why a guard refused the call; then nothing of it ran."""

    status: EffectStatus = "finished"
    reads: tuple[str, ...] = ()
    writes: tuple[TouchedPath, ...] = ()
    command: str | None = None
    exit_code: int | None = None
    hosts: tuple[str, ...] = ()
    denied: str | None = None
    allowed: str | None = None
    """Who let it happen and why: a mode, a rule with its file, a hook, a person."""
    provider: str | None = None
    """Which of several services did it: a search engine, a language server."""
    code: str | None = None
    """Why it failed, as a stable word."""
    stopped: str | None = None
    """What the sandbox kept a command from doing."""


Verdict = Literal["allow", "ask", "deny"]
Ruling = Literal["allow", "confine", "ask", "deny"]
"""`confine`: nobody approved the call, and it may run inside a sandbox where it can change nothing. That is no
permission: a caller that builds no sandbox must not run it."""
Risk = Literal["low", "medium", "high"]
Judge = Literal[
    "mode", "rule", "protected", "critical", "unparsed", "walls", "hook", "classifier", "taint", "person", "policy"
]
"""`walls`: the sandbox, for a call that nobody approved."""


class ToolUse(Struct, frozen=True):
    """One call as the guard judges it. `tool` is the canonical name, `arguments` what the model
    sent, `effects` what the tool declares it may do."""

    tool: str
    arguments: Mapping[str, Any]
    effects: frozenset[EffectKind] = frozenset()
    call_id: str = ""
    confined: bool = False
    """It runs in a sandbox of the operating system that lets it change nothing and gives it no network."""
    stopped: str = ""
    """What it wanted when the sandbox stopped it: a person is now asked to run it outside."""
    paths: tuple[str, ...] | None = None
    """The parameters that the tool declares to be paths; None where it declares none."""


class Decision(Struct, frozen=True):
    """`reason` is a sentence for people and for the model. `source` names the file, setting or
    hook behind it. `rule` is the narrowest rule that would allow this call in future: what the
    answer "always" writes down; None where no rule may."""

    verdict: Ruling
    reason: str
    by: Judge
    source: str = ""
    risk: Risk = "low"
    rule: str | None = None
    facts: Mapping[str, Any] = {}
    """Facts found while judging, for the inbox item: the parts of a command, resolved paths."""


class Permissions(Protocol):
    """The rules of one run. Forked for a child: grants flow down, never up or sideways."""

    @property
    def mode(self) -> PermissionMode: ...

    def decide(self, use: ToolUse) -> Decision:
        """Deny on doubt, ask on what cannot be parsed. Never raises for any input."""
        ...

    def grant(self, rule: str) -> None:
        """Allow what `rule` matches for this run, and for children forked from now on."""
        ...


InboxKind = Literal["approval", "question", "quote"]
InboxState = Literal["waiting", "answered", "expired", "withdrawn"]

APPROVALS = ("allow", "allow-run", "allow-agent", "always", "deny")
"""Once; for this run and its children; for every run of this agent; as a rule in the settings; no."""


class InboxAnswer(Struct, frozen=True):
    """`choice` is one of the item's options, or free text for a question. `message` reaches the
    agent with a denial. `by` is who answered: a front end, `policy`, or `expiry`."""

    choice: str
    message: str = ""
    by: str = ""
    at: float = 0.0


class InboxItem(Struct, frozen=True, kw_only=True):
    """`payload` is the exact call (tool, arguments) or question; `detail` is for people, a diff
    for edits. When `expires_at` passes unanswered, `default` is the answer."""

    id: str
    kind: InboxKind
    run_id: str
    root_id: str
    agent: str
    title: str
    description: str = ""
    """What the agent works on, in a few words: it tells two runs of one agent apart."""
    detail: str = ""
    payload: Mapping[str, Any] = {}
    risk: Risk = "medium"
    reason: str = ""
    rule: str | None = None
    options: tuple[str, ...] = APPROVALS
    default: str = "deny"
    created_at: float = 0.0
    expires_at: float | None = None
    state: InboxState = "waiting"
    answer: InboxAnswer | None = None


class InboxRow(Struct, frozen=True):
    """An item as people see it. `run_state` is that of its run, as seen now."""

    item: InboxItem
    run_state: State | None

    @property
    def interrupted(self) -> bool:
        """Whether no process waits for the answer now; the run takes it when it is resumed."""
        return self.item.state == "waiting" and self.run_state not in LIVE


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
    """The hooks of one run: those of the settings and, while it runs, its file's own. `guard_sources` are the files
    that bring those which can refuse what the run does; those of a program have none, and count as an empty name."""

    guard_sources: frozenset[str]

    def listens(self, event: HookEvent) -> bool:
        """Whether any handler would be called. Cheap: asked before a payload is built."""
        ...

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        """`subject` is what matchers look at: the tool's or the agent's name, the source of a
        session. Never raises for what a handler does."""
        ...

    async def close(self) -> list[str]:
        """Call no hook any more, and end what hooks started. Return what the outcome should say, once."""
        ...


class NoHooks:
    """The hooks of a run that nobody listens to."""

    guard_sources: frozenset[str] = frozenset()

    def listens(self, event: HookEvent) -> bool:
        return False

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        return NO_OPINION

    async def close(self) -> list[str]:
        return []


NO_HOOKS = NoHooks()
