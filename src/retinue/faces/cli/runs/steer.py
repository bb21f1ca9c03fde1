from __future__ import annotations

import argparse
import sys

from retinue.faces.cli.runs._orders import give, report
from retinue.faces.cli.runs.common import add_where, locate
from retinue.faces.cli.task import read_task
from retinue.log.commands import Command
from retinue.models.keys import environment as process_environment


def configure_steer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    parser.add_argument("message", metavar="MESSAGE", help="what to say: words, @file, or - for standard input")
    add_where(parser)


def execute_steer(args: argparse.Namespace) -> int:
    """Say something to a run of any process. It reads it after its current tool calls.

    MESSAGE is the text itself, @file, or - for standard input.

        retinue runs steer 3f2a9c1d "Only look in src/"
        retinue runs steer @explore "And the tests, too"
        git diff | retinue runs steer 3f2a9c1d -
    """
    from retinue.guard.redact import Redactor

    folder, row = locate(args)
    said = read_task(args.message, "message")
    message = Redactor(process_environment())(said)
    if message is not said:
        print("retinue: a secret in the message was taken out; give it to the agent in a file", file=sys.stderr)
    return report(give(folder, [Command(row.id, "steer", message)]), as_json=args.json)
