"""What someone wants run. Built at the borders, checked once, then passed down unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from retinue.core.messages import Image
from retinue.core.placement import ClusterPlacement
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.usage import Budget

Pinned = Literal["model", "thinking", "limits"]
EVERYTHING: frozenset[Pinned] = frozenset({"model", "thinking", "limits"})


class Ceiling(Struct, frozen=True):
    """The rights that a run cannot have because a run above it lacks them."""

    readonly: bool = False
    """It may change nothing."""
    denied: tuple[str, ...] = ()
    """Tools that the files of agents above it deny by name, as they write them."""
    servers: tuple[str, ...] | None = None
    """The only configured MCP servers it may use; None for all."""

    def as_dict(self) -> dict[str, Any]:
        """Return this ceiling as the log keeps it."""
        return {"readonly": self.readonly, "denied": self.denied, "servers": self.servers}

    @classmethod
    def read(cls, data: object) -> Ceiling:
        """Read a ceiling from the log. A value that cannot be read grants no right to change anything."""
        if not isinstance(data, Mapping):
            return cls(readonly=True)
        denied, servers = data.get("denied"), data.get("servers")
        return cls(
            readonly=bool(data.get("readonly", True)),
            denied=_texts(denied) or (),
            servers=_texts(servers),
        )


def _texts(value: object) -> tuple[str, ...] | None:
    if isinstance(value, (list, tuple)):
        return tuple(map(str, value))
    return None


NO_CEILING = Ceiling()


class RunRequest(Struct, frozen=True, kw_only=True):
    spec: AgentSpec
    task: str
    cwd: Path
    images: tuple[Image, ...] = ()
    """What a person attached to the task, for models that see images. The log keeps them with the message."""
    model: str | None = None
    """`provider/model`, or a part of its name, as the caller asked."""
    thinking: str | None = None
    limits: Mapping[str, float | None] = field(default_factory=dict)
    """What the caller said, by the field names of `Limits`; None there means no limit."""
    pinned: frozenset[Pinned] = frozenset()
    """Which of the above a person chose: it goes before what the file says, and the outcome
    says so. What a model chose only fills what the file leaves open."""
    budget: Budget | None = None
    """What the run and all below it may spend, beside what its file and the settings say: the
    tightest counts."""
    schema: Mapping[str, Any] | None = None
    accept: Callable[[Any], object] | None = None
    """Called with a result that matches the schema; raises ValueError with what is wrong with it all the same. Holds in
    this process only: the log keeps the schema."""
    permission_mode: PermissionMode | None = None
    parent_id: str | None = None
    root_id: str | None = None
    depth: int = 0
    context: Literal["fresh", "inherit"] = "fresh"
    isolation: Literal["worktree"] | None = None
    placement: ClusterPlacement | None = None
    """The workers that may serve it; None: it works in this process."""
    join_group: str | None = None
    ceiling: Ceiling = NO_CEILING
    """What the runs above it do not let it have."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Who asked for the run (`by`), where a remote face did, and what else it wants to find again."""
