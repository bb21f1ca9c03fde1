"""`retinue skills list` and `skills show`."""

from __future__ import annotations

import argparse

from msgspec.structs import asdict

from retinue.app.skills import SkillView, describe_skill, list_skills
from retinue.app.text import clean, clip, optional
from retinue.frontends.cli.agents import LOOK_FROM_HELP
from retinue.frontends.cli.project import add_where, folder, say, write_json

_LINE_WIDTH = 100


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, LOOK_FROM_HELP)


def execute_list(args: argparse.Namespace) -> int:
    """List every skill visible from here, and the file that defines it.

    retinue skills list
    retinue skills list --json
    """
    skills = list_skills(folder(args.cwd))
    if args.json:
        write_json(skills)
        return 0
    for skill in skills.skills:
        about = optional("unusable: {}", skill.problem) or " ".join(skill.description.split())
        print(clip(clean(f"{skill.name}  ({', '.join(_marks(skill))})  {about}"), _LINE_WIDTH))
    for skill in skills.shadowed:
        print(clean(f"{skill.name}  ({skill.source}, replaced by another of its name)  {skill.path}"))
    for refused in skills.refused:
        say(clean(f"not used: {refused.path}: {refused.reason}"))
    if not skills.skills:
        print("There are no skills here. Put one into .retinue/skills/NAME/SKILL.md.")
    return 0


def _marks(skill: SkillView) -> list[str]:
    marks = [skill.source]
    if not skill.model_invocable:
        marks.append("only for people")
    if not skill.user_invocable:
        marks.append("only for agents")
    if skill.context == "fork":
        marks.append("own agent")
    return marks


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="exact, or in any case")
    parser.add_argument("--arguments", metavar="TEXT", default="", help="the arguments of the skill")
    add_where(parser, LOOK_FROM_HELP)


def execute_show(args: argparse.Namespace) -> int:
    """Show one skill: its description, its text as a model would receive it, and its files.

    retinue skills show pdf
    retinue skills show pdf --arguments "report.pdf 3"
    """
    skill = describe_skill(folder(args.cwd), args.name, args.arguments)
    if args.json:
        write_json(skill)
        return 0
    for key, value in asdict(skill).items():
        if isinstance(value, (list, tuple)):
            value = ", ".join(value)
        if key != "text" and value not in (None, ""):
            print(clean(f"{key:<16} {value}"))
    print("\n" + "\n".join(map(clean, skill.text.split("\n"))))
    return 0
