"""The skills that agents can see: list them, and show one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import asdict

from retinue.app.agents import RefusedFile
from retinue.capabilities.skills.attach import library_of
from retinue.cluster import open_project
from retinue.errors import UsageError

if TYPE_CHECKING:
    from retinue.capabilities.skills.parse import Skill


class SkillView(Struct, frozen=True, kw_only=True):
    """One skill. `problem` is the reason why it cannot be used. `ignored` are keys without effect."""

    name: str
    description: str
    when_to_use: str
    source: str
    path: str
    argument_hint: str
    arguments: Sequence[str]
    allowed_tools: Sequence[str]
    model_invocable: bool
    user_invocable: bool
    context: Literal["fork", "inline"]
    agent: str | None
    model: str | None
    problem: str | None
    ignored: list[str]


class SkillDetail(SkillView, frozen=True, kw_only=True):
    """A skill with its files, and its text as a model would receive it."""

    text: str
    files: Sequence[str]


class SkillList(Struct, frozen=True):
    """All visible skills, those replaced by another of the same name, and files that cannot be used."""

    skills: list[SkillView]
    shadowed: list[SkillView]
    refused: list[RefusedFile]


def list_skills(cwd: Path) -> SkillList:
    """Return the skills visible from `cwd`."""
    library = library_of(open_project(cwd))
    if library is None:
        return SkillList([], [], [])
    refused = [RefusedFile(path, reason) for path, reason in library.refused()]
    return SkillList([*map(_view, library.all())], [*map(_view, library.shadowed())], refused)


def describe_skill(cwd: Path, name: str, arguments: str = "") -> SkillDetail:
    """Return one skill in detail. Raise UsageError for an unknown skill, and for a file that cannot be read."""
    library = library_of(open_project(cwd))
    skill = library.find(name) if library is not None else None
    if library is None or skill is None:
        raise UsageError(f"There is no skill called '{name}'.", remedy="See all with: retinue skills list")
    try:
        text, files = library.text(skill, arguments), library.files(skill)
    except OSError as error:
        raise UsageError(f"{skill.path} cannot be read: {error.strerror or error}.") from error
    return SkillDetail(**asdict(_view(skill)), text=text, files=files)


def _view(skill: Skill) -> SkillView:
    return SkillView(
        name=skill.name,
        description=skill.description,
        when_to_use=skill.when_to_use,
        source=skill.source,
        path=str(skill.path),
        argument_hint=skill.argument_hint,
        arguments=skill.arguments,
        allowed_tools=skill.allowed_tools,
        model_invocable=skill.model_invocable,
        user_invocable=skill.user_invocable,
        context="fork" if skill.fork else "inline",
        agent=skill.agent,
        model=skill.model,
        problem=skill.problem or None,
        ignored=sorted(skill.extra),
    )
