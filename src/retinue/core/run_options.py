"""What was decided about a run when it was created, as its first event keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from retinue.core.spec import PermissionMode


class RunOptions(Struct, frozen=True, kw_only=True):
    """A resume is faithful because of these. Logs of older versions lack some of them; a default means that nothing
    was said."""

    name: str | None = None
    description: str = ""
    background: bool = False
    call_id: str | None = None
    transcript: str | None = None
    model: str | None = None
    thinking: str | None = None
    limits: Mapping[str, int | float | None] = field(default_factory=dict)
    budget: Mapping[str, int | float] | None = None
    pinned: tuple[Literal["model", "thinking", "limits"], ...] | None = None
    """What a person chose; None in old logs, where all of it counts as chosen."""
    schema: Mapping[str, Any] | None = None
    permission_mode: PermissionMode | None = None
    readonly: bool = False
    isolation: Literal["worktree"] | None = None
    ceiling: Any = None
    """As `Ceiling.read` takes it, which grants nothing for a value that it cannot read."""
    bounds: Any = None
    """As `bounds_from_record` takes them."""
    placement: Mapping[str, Any] | None = None
    system: Any = None
    """The system prompt, or what of it is not its parent's."""
    commit: str | None = None
    """The commit at which the first run of a tree began."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Who asked for the run (`by`), where a remote face did."""
    fork: Mapping[str, Any] | None = None
    """The run that this one is a fork of, and where it left it."""


NO_OPTIONS = RunOptions()
