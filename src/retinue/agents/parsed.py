"""What reading one agent file gave: a spec or a reason, and always the fate of every key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from retinue.core.lean import dataclass
from retinue.core.spec import AgentSpec, DialectName, Fate, Problem

Reading = Literal["yaml", "quoted", "lines", "simple", "none"]
"""How the frontmatter was understood: strict YAML, YAML after quoting one-line values, line by
line, a dialect's own simple reading, or there was none."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key stands in the file, 1-based. `end_line` is the last line of its value."""

    line: int
    column: int
    end_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """`spec` is None exactly when `error` is set. `tools` are the names as the file wrote them
    (None: the file does not restrict); `spec.tools` says what they mean."""

    file: str
    dialect: DialectName
    name: str | None
    description: str | None
    tools: tuple[str, ...] | None
    disallowed_tools: tuple[str, ...] | None
    model: str | tuple[str, ...] | None
    prompt: str
    spec: AgentSpec | None
    reading: Reading
    fates: Mapping[str, Fate] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    error: Problem | None = None
