"""What someone wants run. Built at the borders, checked once, then passed down unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from retinue.domain.limits import Limits
from retinue.domain.spec import AgentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    spec: AgentSpec
    task: str
    cwd: Path
    model: str | None = None
    """`provider/model` as the caller asked; the file's own model wins over it."""
    thinking: str | None = None
    limits: Limits = field(default_factory=Limits)
    schema: Mapping[str, Any] | None = None
    parent_id: str | None = None
    root_id: str | None = None
    depth: int = 0
    context: Literal["fresh", "inherit"] = "fresh"
    isolation: Literal["worktree"] | None = None
    join_group: str | None = None
