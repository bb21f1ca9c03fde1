"""Decisions about tool calls: effects, the decision of the guard, the inbox, and hooks.

Decisions depend on effects, and not on the names of tools. An inbox item (approval, question or quote) is answered
exactly once. Hooks are programs of the user that are called at events of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from retinue.core.delegation import LIVE, State
from retinue.core.spec import PermissionMode
from retinue.core.value import Tagged

EffectKind = Literal["read", "write", "execute", "network", "spawn", "ask"]
"""read: reads files of the workspace. write: changes files. execute: runs programs, with all effects that the sandbox
allows. network: connects to other hosts. spawn: starts runs. ask: needs a person."""

READ_ONLY: frozenset[EffectKind] = frozenset({"read", "network", "ask"})

EffectStatus = Literal["started", "finished", "failed", "unknown"]


class TouchedPath(Struct, frozen=True):
    """A file that a call changed. `before` and `after` are content hashes (sha256, hex); None if there was no file."""

    path: str
    before: str | None = None
    after: str | None = None


class ToolEffect(Tagged, frozen=True, tag="effect"):
    """The effects of a call. Recovery records `unknown` for a call that started and has no result. `denied` is the
    reason of a refused call, which did not run."""

    status: EffectStatus = "finished"
    reads: tuple[str, ...] = ()
    writes: tuple[TouchedPath, ...] = ()
    command: str | None = None
    exit_code: int | None = None
    hosts: tuple[str, ...] = ()
    denied: str | None = None
    allowed: str | None = None
    """Who allowed the call, and why: a mode, a rule with its file, a hook, a person."""
    provider: str | None = None
    """The service that was used, such as a search engine or a language server."""
    code: str | None = None
    """The reason of a failure, as a stable word."""
    stopped: str | None = None
    """The action of a command that the sandbox prevented."""
    in_background: bool = False
    """An agent that the call started or moved continues after it."""


IN_BACKGROUND = ToolEffect(in_background=True)


Verdict = Literal["allow", "ask", "deny"]
Ruling = Literal["allow", "confine", "ask", "deny"]
"""`confine`: nobody approved the call, and it may only run inside a sandbox where it can change nothing. A caller
without a sandbox must not run it."""
Risk = Literal["low", "medium", "high"]
Judge = Literal[
    "mode", "rule", "protected", "critical", "unparsed", "walls", "hook", "classifier", "taint", "person", "policy"
]
"""`walls`: the sandbox, for a call that nobody approved."""


class ToolUse(Struct, frozen=True):
    """A call for the guard. `tool` is the canonical name of the tool, `effects` are those that it declares."""

    tool: str
    arguments: Mapping[str, Any]
    effects: frozenset[EffectKind] = frozenset()
    call_id: str = ""
    confined: bool = False
    """Whether it runs in a sandbox of the operating system without a right to change anything and without network."""
    stopped: str = ""
    """The action that the sandbox prevented: a person is now asked whether it may run outside of it."""
    paths: tuple[str, ...] | None = None
    """The parameters that the tool declares to be paths; None if it declares none."""


class Decision(Struct, frozen=True):
    """A decision about a call. `reason` is a sentence for people and for the model. `source` names its file, setting or
    hook. `rule` is the narrowest rule that would allow this call in future, which the answer "always" adds; None if no
    rule may allow it."""

    verdict: Ruling
    reason: str
    by: Judge
    source: str = ""
    risk: Risk = "low"
    rule: str | None = None
    facts: Mapping[str, Any] = {}
    """Facts for the inbox item, such as the parts of a command and resolved paths."""


class Permissions(Protocol):
    """The rules of one run. A child gets a copy: grants apply to later children, but not to parents or siblings."""

    @property
    def mode(self) -> PermissionMode: ...

    def decide(self, use: ToolUse) -> Decision:
        """Return the decision about a call. It denies in doubt, and asks about commands that it cannot parse. It never
        raises."""
        ...

    def grant(self, rule: str) -> None:
        """Allow the calls that `rule` matches, for this run and for its later children."""
        ...


InboxKind = Literal["approval", "question", "quote"]
InboxState = Literal["waiting", "answered", "expired", "withdrawn"]

APPROVALS = ("allow", "allow-run", "allow-agent", "always", "deny")
"""The answers: once; for this run and its children; for every run of this agent; as a rule in the settings; no."""


class InboxAnswer(Struct, frozen=True):
    """An answer. `choice` is one of the item's options, or a free text for a question. The agent gets `message` with a
    denial. `by` is who answered: a front end, `policy`, or `expiry`."""

    choice: str
    message: str = ""
    by: str = ""
    at: float = 0.0


class InboxItem(Struct, frozen=True, kw_only=True):
    """A question that waits for a person. `payload` is the exact call (tool, arguments) or question; `detail` is a text
    for people, such as a diff. If it is not answered before `expires_at`, `default` is the answer."""

    id: str
    kind: InboxKind
    run_id: str
    root_id: str
    agent: str
    title: str
    description: str = ""
    """The task of the agent in a few words, by which two runs of one agent can be distinguished."""
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
    """An inbox item with the current state of its run."""

    item: InboxItem
    run_state: State | None

    @property
    def interrupted(self) -> bool:
        """Whether no process waits for the answer now. The run gets it when it is resumed."""
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
"""The names of Claude Code. SubagentSpawn (may veto), ModelRequest, ModelResponse, TurnStart and TurnEnd are points of
CodingCode without a counterpart there."""


class HookResult(Struct, frozen=True):
    """The combined result of all handlers of one event: deny has precedence over ask, and ask over allow; None is no
    opinion. `failures` names handlers that failed; if they guard something, the verdict is deny."""

    verdict: Verdict | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    updated_output: str | None = None
    context: str = ""
    """A text for the model, with the result or before the prompt; for Stop and SubagentStop the instruction with which
    the run continues."""
    stop: str | None = None
    """The reason why a handler stops the run."""
    messages: tuple[str, ...] = ()
    """For people."""
    output: str = ""
    """The standard output of the last handler (WorktreeCreate: the path)."""
    failures: tuple[str, ...] = ()
    handlers: tuple[str, ...] = field(default=())
    """The handlers that answered, for the audit."""


NO_OPINION = HookResult()


class Hooks:
    """The hooks of one run: those of the settings, and those of its agent's file. This class has no handlers.
    `guard_sources` are the files of hooks that can refuse a call; the hooks of a program have an empty name."""

    guard_sources: frozenset[str] = frozenset()

    def listens(self, event: HookEvent) -> bool:
        """Return whether any handler would be called. It is cheap, and called before a payload is built."""
        return False

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        """Call the handlers of an event. Matchers are applied to `subject`: the name of the tool or agent, or the
        source of a session. It never raises for an error of a handler."""
        return NO_OPINION

    async def close(self) -> list[str]:
        """Disable the hooks, and end the programs that they started. Return notes for the outcome, once."""
        return []


NO_HOOKS = Hooks()
