from __future__ import annotations

import argparse

from retinue.errors import UsageError
from retinue.faces.cli.agents._common import add_common, folder
from retinue.faces.cli.agents._show import clean, write_json
from retinue.faces.cli.skills.list import skill_data


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="exact, or without regard to case")
    parser.add_argument("--arguments", metavar="TEXT", default="", help="what the skill is given")
    add_common(parser)


def execute_show(args: argparse.Namespace) -> int:
    """One skill: what it says of itself, its text as a model would get it, and its files.

    retinue skills show pdf
    retinue skills show pdf --arguments "report.pdf 3"
    """
    from retinue.capabilities.skills.attach import library_of
    from retinue.runs.world import World

    library = library_of(World(folder(args)))
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
        if key != "text" and value not in (None, "", []):
            print(clean(f"{key:<16} {', '.join(value) if isinstance(value, list) else value}"))
    print("\n" + "\n".join(clean(line) for line in text.split("\n")))
    return 0
