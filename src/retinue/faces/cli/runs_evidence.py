"""`retinue runs export`: a past run as a file that can be reviewed, shared and played again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from retinue.core.delegation import LIVE
from retinue.errors import StateError, UsageError
from retinue.evidence.cassette import export_cassette
from retinue.faces.cli.project import add_cwd, add_run, locate, say
from retinue.guard.redact import Redactor
from retinue.log.query import LogReader
from retinue.models.keys import environment as process_environment
from retinue.settings.places import home


def configure_export(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--cassette", metavar="FILE", required=True, help="write the run and its whole tree to this file; - for stdout"
    )
    add_cwd(parser)


def execute_export(args: argparse.Namespace) -> int:
    """Write a past run, with every run below it, to a cassette: one event a line, without secrets, with `$CWD` in
    place of the folder it worked in. `retinue test` and `retinue replay` play it.

    retinue runs export 3f2a9c1d --cassette review.cassette.jsonl
    """
    folder, row = locate(args)
    with LogReader.open(folder) as reader:
        if row.state in LIVE:
            raise StateError(f"Run {row.id} is still at work.", remedy="Export it when it has ended.")
        data = export_cassette(reader, row, home(), Redactor(process_environment()))
    if args.cassette == "-":
        sys.stdout.buffer.write(data)
        return 0
    target = Path(args.cassette).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{target} cannot be written: {reason}.", remedy="Name another file.") from error
    lines = data.count(b"\n") - 1
    say(f"{lines} events of {row.agent} ({row.id[:8]}) are in {target}.")
    return 0
