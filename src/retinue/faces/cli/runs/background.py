from __future__ import annotations

import argparse

from retinue.faces.cli.runs._orders import give, report
from retinue.faces.cli.runs.common import add_where, locate
from retinue.log.commands import Command


def configure_background(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    add_where(parser)


def execute_background(args: argparse.Namespace) -> int:
    """Move a run that another one waits for to the background: that one goes on, and is told when the
    run has ended.

    retinue runs background 3f2a9c1d
    retinue runs background @explore
    """
    folder, row = locate(args)
    return report(give(folder, [Command(row.id, "background")]), as_json=args.json)
