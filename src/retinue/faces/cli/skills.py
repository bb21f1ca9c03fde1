"""`retinue skills list` and `skills show`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError
from retinue.faces.cli.agents import LOOK_FROM
from retinue.faces.cli.project import add_where, folder, say, write_json
from retinue.faces.text import clean, clip, optional

if TYPE_CHECKING:
    from retinue.capabilities.skills.parse import Skill


_WIDTH = 100


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, LOOK_FROM)


def execute_list(args: argparse.Namespace) -> int:
    """Every skill that agents can see from here, and which file won.

    retinue skills list
    retinue skills list --json
    """
    from retinue.capabilities.skills.attach import library_of
    from retinue.engine import open_project

    library = library_of(open_project(folder(args.cwd)))
    skills: Sequence[Skill] = ()
    shadowed: Sequence[Skill] = ()
    refused: Sequence[tuple[str, str]] = ()
    if library is not None:
        skills, shadowed, refused = library.all(), library.shadowed(), library.refused()
    if args.json:
        data: dict[str, Any] = {"skills": [*map(skill_data, skills)], "shadowed": [*map(skill_data, shadowed)]}
        write_json({**data, "refused": [{"path": path, "reason": reason} for path, reason in refused]})
        return 0
    for skill in skills:
        about = optional("unusable: {}", skill.problem) or " ".join(skill.description.split())
        print(clip(clean(f"{skill.name}  ({', '.join(_marks(skill))})  {about}"), _WIDTH))
    for skill in shadowed:
        print(clean(f"{skill.name}  ({skill.source}, replaced by another of its name)  {skill.path}"))
    for path, reason in refused:
        say(clean(f"not used: {path}: {reason}"))
    if not skills:
        print("There are no skills here. Put one into .retinue/skills/NAME/SKILL.md.")
    return 0


def _marks(skill: Skill) -> list[str]:
    marks: list[str] = [skill.source]
    if not skill.model_invocable:
        marks.append("only for people")
    if not skill.user_invocable:
        marks.append("only for agents")
    if skill.fork:
        marks.append("own agent")
    return marks


def skill_data(skill: Skill) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "when_to_use": skill.when_to_use,
        "source": skill.source,
        "path": str(skill.path),
        "argument_hint": skill.argument_hint,
        "arguments": list(skill.arguments),
        "allowed_tools": list(skill.allowed_tools),
        "model_invocable": skill.model_invocable,
        "user_invocable": skill.user_invocable,
        "context": "fork" if skill.fork else "inline",
        "agent": skill.agent,
        "model": skill.model,
        "problem": skill.problem or None,
        "ignored": sorted(skill.extra),
    }


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="exact, or without regard to case")
    parser.add_argument("--arguments", metavar="TEXT", default="", help="what the skill is given")
    add_where(parser, LOOK_FROM)


def execute_show(args: argparse.Namespace) -> int:
    """One skill: what it says of itself, its text as a model would get it, and its files.

    retinue skills show pdf
    retinue skills show pdf --arguments "report.pdf 3"
    """
    from retinue.capabilities.skills.attach import library_of
    from retinue.engine import open_project

    library = library_of(open_project(folder(args.cwd)))
    skill = library.find(args.name) if library is not None else None
    if library is None or skill is None:
        raise UsageError(f"There is no skill called '{clean(args.name)}'.", remedy="See all with: retinue skills list")
    try:
        text, bundled = library.text(skill, args.arguments), library.files(skill)
    except OSError as error:
        raise UsageError(f"{skill.path} cannot be read: {error.strerror or error}.") from error
    data = {**skill_data(skill), "text": text, "files": list(bundled)}
    if args.json:
        write_json(data)
        return 0
    for key, value in data.items():
        if isinstance(value, list):
            value = ", ".join(value)
        if key != "text" and value not in (None, ""):
            print(clean(f"{key:<16} {value}"))
    print("\n" + "\n".join(map(clean, text.split("\n"))))
    return 0
