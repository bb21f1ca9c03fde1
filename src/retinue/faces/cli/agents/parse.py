from __future__ import annotations

import argparse

from retinue.agents.dialects import DIALECTS
from retinue.agents.parse import parse, read_bytes, unusable
from retinue.agents.skill import is_skill, parse_skill
from retinue.core.spec import DialectName, Problem
from retinue.faces.cli.agents._show import parsed_data, write_json

_SKILLS = ("skill", "skills")


def configure_parse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="an agent file of any dialect, or a SKILL.md")
    parser.add_argument("--dialect", choices=(*DIALECTS, *_SKILLS), help="read every file as this dialect's")


def execute_parse(args: argparse.Namespace) -> int:
    """Files to JSON lines, without discovery: one line per file, in the order given.

    The dialect is guessed from the path, and from the keys where the path says nothing, unless it
    is given. A file that is no agent is a line with an error; the exit code stays 0, because the
    errors are part of the answer.
    """
    for path in args.files:
        write_json(_one(path, args.dialect), indent=None)
    return 0


def _one(path: str, dialect: str | None) -> dict[str, object]:
    skill = dialect in _SKILLS or (dialect is None and is_skill(path))
    chosen: DialectName | None = next((name for name in DIALECTS if name == dialect), None)
    data = read_bytes(path)
    if isinstance(data, Problem):
        return parsed_data(unusable(path, data, chosen), "skill" if skill else None)
    if skill:
        return parsed_data(parse_skill(data, path=path), "skill")
    return parsed_data(parse(data, path=path, dialect=chosen))
