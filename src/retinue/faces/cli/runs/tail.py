from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from retinue.faces.cli.numbers import count
from retinue.faces.cli.output import escape_json
from retinue.faces.cli.progress import Progress
from retinue.faces.cli.runs.common import add_where, locate
from retinue.faces.cli.visible import for_reader
from retinue.log.encode import event_to_json
from retinue.log.follow import follow
from retinue.log.query import Reader
from retinue.log.rows import RunRow


def configure_tail(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    parser.add_argument("--after", type=count, default=0, metavar="SEQ", help="only events after this number")
    add_where(parser)


def execute_tail(args: argparse.Namespace) -> int:
    """Watch a run of any process: what it has done, and what it does, until it ends.

    retinue runs tail 3f2a9c1d
    retinue runs tail 3f2a9c1d --json      (every event as a JSON line)
    """
    folder, row = locate(args)
    try:
        asyncio.run(_watch(folder, row, args))
    except KeyboardInterrupt:
        return 130
    with Reader.open(folder) as reader:
        outcome = reader.outcome(row.id)
        if reader.run(row.id).state == "interrupted":
            print(f"retinue: interrupted; go on with: retinue runs resume {row.id[:8]}", file=sys.stderr)
    if outcome is not None and not args.json:
        print(for_reader(outcome.text) or "No output.")
    return 0


async def _watch(folder: Path, row: RunRow, args: argparse.Namespace) -> None:
    progress = Progress(row.agent)
    async for event in follow(folder, row.id, args.after):
        if args.json:
            sys.stdout.buffer.write(escape_json(event_to_json(event)) + b"\n")
            sys.stdout.buffer.flush()
        else:
            progress.show(event)
