from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import get_args

from retinue.core.states import State
from retinue.faces.cli.numbers import count
from retinue.faces.cli.runs.common import add_where, line, project
from retinue.faces.cli.visible import one_line
from retinue.log.pending import describe_call
from retinue.log.query import Reader, as_dict, everywhere
from retinue.log.rows import RunRow
from retinue.runs.record import Tag
from retinue.runs.recover import stored_tag
from retinue.settings.places import retinue_home


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("--all", action="store_true", help="of all projects")
    parser.add_argument("--state", choices=get_args(State), action="append", help="only runs in this state")
    parser.add_argument("--agent", metavar="NAME", help="only runs of this agent")
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="at most N runs (default: 20; 0: all)")


def execute_list(args: argparse.Namespace) -> int:
    """Runs of this project, newest first, each with its agents below it and the names by which they
    are addressed.

    Under a run whose process died stand the calls of which nobody knows what they did, and the
    commands of them that still run.

    retinue runs list
    retinue runs list --state interrupted
    retinue runs list --all --json
    """
    tags: dict[str, Tag] = {}

    def read(reader: Reader) -> list[RunRow]:
        found = reader.list_runs(states=args.state, agent=args.agent, limit=args.limit or None)
        tags.update((row.id, stored_tag(reader, row)) for row in found)
        return found

    if args.all:
        rows = [row for _, found in everywhere(retinue_home(), read) for row in found]
        rows.sort(key=lambda row: row.created_at, reverse=True)
        rows = rows[: args.limit or None]
    else:
        with Reader.open(project(args)) as reader:
            rows = read(reader)
    cut_off = any(row.state == "interrupted" for row in rows)
    unknown = {} if args.all else _unknown(project(args), rows)
    living = _living(project(args)) if cut_off and not args.all else {}
    if args.json:
        from retinue.log.encode import dump

        cut = [
            {"id": run_id, "unknown": calls, "still_running": living.get(run_id, [])}
            for run_id, calls in unknown.items()
        ]
        runs = [{**as_dict(row), "name": tags[row.id].name, "description": tags[row.id].description} for row in rows]
        print(dump({"runs": runs, **({"interrupted": cut} if cut else {})}).decode())
        return 0
    width = shutil.get_terminal_size((160, 24)).columns
    for row in _as_trees(rows):
        print(line(row, width, tags[row.id]))
        for call in unknown.get(row.id, ()):
            print(f"    {one_line(f'? nobody knows what this did: {call}', width - 4)}")
        for command in living.get(row.id, ()):
            print(f"    {one_line(f'! still runs: {command}', width - 4)}")
    if cut_off:
        print("Go on with one: retinue runs resume ID", file=sys.stderr)
    if living:
        print("End what still runs: retinue runs stop ID; resuming the run does so, too", file=sys.stderr)
    if not rows:
        print("No runs here yet. Start one: retinue run Explore 'Where is …?'", file=sys.stderr)
    return 0


def _as_trees(rows: list[RunRow]) -> list[RunRow]:
    """The same rows, but below each run those that it started, in the order it did."""
    shown = {row.id for row in rows}
    below: dict[str | None, list[RunRow]] = {}
    for row in rows:
        below.setdefault(row.parent_id if row.parent_id in shown else None, []).append(row)
    found: list[RunRow] = []
    waiting = below.get(None, [])[::-1]
    while waiting:
        found.append(waiting.pop())
        waiting += below.get(found[-1].id, [])
    return found


def _unknown(folder: Path, rows: list[RunRow]) -> dict[str, list[str]]:
    """Of each interrupted run, the calls that had begun when its process died."""
    with Reader.open(folder) as reader:
        return {
            row.id: [describe_call(call) for call in reader.conversation(row.id).unknown]
            for row in rows
            if row.state == "interrupted"
        }


def _living(folder: Path) -> dict[str, list[str]]:
    """Commands that outlived the process of their run, by run."""
    from retinue.runs.leftovers import living_commands

    with Reader.open(folder) as reader:
        return living_commands(reader)
