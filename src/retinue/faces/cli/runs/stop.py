from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from retinue.core.states import LIVE
from retinue.errors import UsageError
from retinue.faces.cli.runs._orders import give, report, until_ended
from retinue.faces.cli.runs.common import add_where, locate, project
from retinue.log.commands import Answer, Command, CommandKind
from retinue.log.query import Reader
from retinue.log.rows import RunRow


def configure_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", nargs="?", help="id of the run, its beginning, or @name")
    parser.add_argument("--tree", action="store_true", help="also all runs it has started, and theirs")
    parser.add_argument("--all", action="store_true", help="every run of this project, of all processes")
    add_where(parser)


def execute_stop(args: argparse.Namespace) -> int:
    """Stop a run of any process. It keeps what it has said and can be resumed. Of a run whose process
    died, commands that still run are ended.

    retinue runs stop 3f2a9c1d
    retinue runs stop 3f2a9c1d --tree      (with everything it has started)
    retinue runs stop --all                (every run of this project)
    """
    if (args.run is None) == (not args.all):
        raise UsageError("Say which run to stop.", remedy="Give one ID, or --all. See: retinue runs list")
    folder, targets, kind = _targets(args)
    ended = _end_commands(folder, targets)
    if ended:
        return report([Answer(row.id, True, ended) for row in targets], as_json=args.json)
    if not targets:
        print("Nothing is running here.", file=sys.stderr)
        return report([], as_json=True) if args.json else 0
    answers = give(folder, [Command(row.id, kind) for row in targets])
    live = [row.id for row in targets if row.state in LIVE]
    accepted = [answer.run_id for answer in answers if answer.accepted]
    statuses = until_ended(folder, live if args.tree or args.all else accepted)
    if args.tree or args.all:
        # One that ended by itself, or with the one before it, is as stopped as was wanted.
        over = {run_id for run_id, status in statuses.items() if status not in LIVE}
        answers = [replace(answer, accepted=True) if answer.run_id in over else answer for answer in answers]
    return report(answers, as_json=args.json, statuses=statuses)


def _end_commands(folder: Path, targets: list[RunRow]) -> str:
    """Ends what commands of an interrupted run still do. Returns what that was."""
    if not targets or any(row.state != "interrupted" for row in targets):
        return ""
    from retinue.runs.leftovers import end_leftovers

    with Reader.open(folder) as reader:
        return "; ".join(end_leftovers(reader))


def _targets(args: argparse.Namespace) -> tuple[Path, list[RunRow], CommandKind]:
    if args.all:
        folder = project(args)
        with Reader.open(folder) as reader:
            return folder, list(reversed(reader.list_runs(states=LIVE))), "stop"
    folder, row = locate(args)
    if not args.tree:
        return folder, [row], "stop"
    with Reader.open(folder) as reader:
        return folder, _live_below(reader, row) or [row], "stop-tree"


def _live_below(reader: Reader, row: RunRow) -> list[RunRow]:
    """The run and all its descendants that live, parents first: also those in other processes,
    and those that outlived the run itself."""
    found, waiting = [], [row]
    while waiting:
        each = waiting.pop(0)
        found.append(each)
        waiting += reversed(reader.list_runs(parent_id=each.id))
    return [each for each in found if each.state in LIVE]
