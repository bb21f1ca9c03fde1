"""A skill: instructions that a run gets when it needs them, with files of their own.

The words between whoever finds skills on disk, the tool that loads them and the guard that
decides what one may bring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol

from retinue.core.lean import dataclass

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
