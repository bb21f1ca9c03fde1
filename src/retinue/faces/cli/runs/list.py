"""Runs of this project, newest first.

retinue runs list
retinue runs list --state interrupted
retinue runs list --all --json
"""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import get_args

from retinue.domain.states import State
from retinue.faces.cli.runs.common import add_where, line, project
from retinue.log.query import Reader, everywhere
from retinue.log.rows import RunRow
from retinue.settings.places import retinue_home


def configure(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("--all", action="store_true", help="of all projects")
    parser.add_argument("--state", choices=get_args(State), action="append", help="only runs in this state")
    parser.add_argument("--agent", metavar="NAME", help="only runs of this agent")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="at most N runs (default: 20; 0: all)")


def execute(args: argparse.Namespace) -> int:
    def read(reader: Reader) -> list[RunRow]:
        return reader.list_runs(states=args.state, agent=args.agent, limit=args.limit or None)

    if args.all:
        rows = [row for _, found in everywhere(retinue_home(), read) for row in found]
        rows.sort(key=lambda row: row.created_at, reverse=True)
        rows = rows[: args.limit or None]
    else:
        with Reader.open(project(args)) as reader:
            rows = read(reader)
    if args.json:
        from retinue.log.encode import dump

        print(dump({"runs": rows}).decode())
        return 0
    width = shutil.get_terminal_size((160, 24)).columns
    for row in rows:
        print(line(row, width))
    if not rows:
        print("No runs here yet. Start one: retinue run Explore 'Where is …?'", file=sys.stderr)
    return 0
