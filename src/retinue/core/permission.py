"""The effects of a tool call, and the guard's decision about it.

Policy works on effects, never on tool names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct, field

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
Risk = Literal["low", "medium", "high"]
Judge = Literal[
    "mode", "rule", "protected", "critical", "unparsed", "walls", "hook", "classifier", "taint", "person", "policy"
]
"""`walls`: nobody approved it, and the command runs in a sandbox where it can change nothing."""

Clearance = Literal["walls", "mode", "rule", "person"]
"""Who approved a command, from nobody to a person: that decides what its shell can reach."""


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


class Decision(Struct, frozen=True):
    """`reason` is a sentence for people and for the model. `source` names the file, setting or
    hook behind it. `rule` is the narrowest rule that would allow this call in future: what the
    answer "always" writes down; None where no rule may."""

    verdict: Verdict
    reason: str
    by: Judge
    source: str = ""
    risk: Risk = "low"
    rule: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
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
