"""Watch runs of another process in the terminal app, and step in.

    retinue attach                 the newest run of this project that is at work
    retinue attach 3f2a9c1d        this one, of any project

What you type is said to the run; `@name words` goes to one of its agents. /stop ends it. Leaving
changes nothing for the run. What it asks can be answered in the inbox (F2).
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.delegation import LIVE
from retinue.errors import StateError, UsageError
from retinue.log.query import LogReader
from retinue.log.rows import RunRow

if TYPE_CHECKING:
    from retinue.faces.cli.terminal_host import Host


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", nargs="?", help="id of a run, its beginning, or @name")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")


def execute(args: argparse.Namespace) -> int:
    from retinue.faces.cli.main import at_terminal
    from retinue.faces.cli.project import project_of
    from retinue.faces.cli.terminal_host import hosted

    state, row = _wanted(args)
    if not at_terminal():
        raise UsageError("The terminal app needs a terminal.", remedy=f"Without one: retinue runs tail {row.id[:8]}")
    return hosted(lambda host: asyncio.run(_watch(project_of(state, row), row, host)))


async def _watch(folder: Path, row: RunRow, host: Host | None) -> int:
    from retinue.faces.api import Retinue
    from retinue.faces.cli.terminal import show

    async with Retinue(folder) as retinue:
        return await show(retinue, host, resume=row.root_id, viewed=row.id if row.id != row.root_id else None)


def _wanted(args: argparse.Namespace) -> tuple[Path, RunRow]:
    """The state folder and the run that was named, or the newest at work. Raises StateError when there is none."""
    from retinue.faces.cli.project import locate, project

    if args.run is not None:
        return locate(args)
    with LogReader.open(project(args)) as reader:
        live = [row for row in reader.list_runs(states=LIVE) if row.id == row.root_id]
    if not live:
        raise StateError(
            "Nothing is at work in this project.", remedy="See: retinue runs list; go on: retinue --resume"
        )
    return project(args), live[0]
