"""What a tool may do, and what it really did. Policy works on these, never on tool names."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from retinue.core.lean import dataclass

EffectKind = Literal["read", "write", "execute", "network", "spawn", "ask"]
"""read: files of the workspace. write: changes files. execute: runs programs (may do anything
the sandbox lets it). network: talks to other hosts. spawn: starts runs. ask: needs a person."""

READ_ONLY: frozenset[EffectKind] = frozenset({"read", "network", "ask"})

EffectStatus = Literal["started", "finished", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class TouchedPath:
    """`before` and `after` are content hashes (sha256, hex); None where there was no file."""

    path: str
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class ToolEffect:
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
    """What the walls around a command kept it from."""
    type: Literal["effect"] = field(default="effect", init=False)
