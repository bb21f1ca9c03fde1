from __future__ import annotations

import argparse
import sys

from retinue.faces.cli.inbox._show import headline
from retinue.faces.cli.runs.common import add_where, project
from retinue.models.keys import environment as process_environment
from retinue.settings.places import retinue_home

BY = "command line"


def configure_answer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", metavar="ID", help="id of the item, or its beginning: retinue inbox list")
    parser.add_argument("choice", metavar="ANSWER", nargs="+", help="one of the item's answers; words for a question")
    parser.add_argument("--message", metavar="TEXT", default="", help="what to tell the agent with a denial")
    add_where(parser)


def execute_answer(args: argparse.Namespace) -> int:
    """Answer what waits in the inbox, for a run of any process. Each item is answered once.

        retinue inbox answer 1a2b3c allow            this call, once
        retinue inbox answer 1a2b3c allow-run        calls like it, in this run and below it
        retinue inbox answer 1a2b3c allow-agent      calls like it, in every run of this agent
        retinue inbox answer 1a2b3c always           as a rule in the settings of this project
        retinue inbox answer 1a2b3c deny --message "Use the staging server"
        retinue inbox answer 4d5e6f Only the public API, please

    ID is the item's id or the beginning of it; questions take any words. The exit code is 1 when
    someone else has answered already, and 2 when there is no such item or answer.
    """
    from retinue.core.inbox import InboxAnswer
    from retinue.guard.redact import Redactor
    from retinue.log.inbox import answer, locate

    folder, item = locate(retinue_home(), args.item, project(args))
    redact, said = Redactor(process_environment()), " ".join(args.choice)
    given = InboxAnswer(redact(said), redact(args.message), BY)
    if given.choice is not said or given.message is not args.message:
        print("retinue: a secret in the answer was taken out; give it to the agent in a file", file=sys.stderr)
    closed = answer(folder, item, given)
    if args.json:
        from retinue.log.encode import dump

        print(dump(closed).decode())
    else:
        print(f"{closed.id}  {closed.answer.choice if closed.answer else ''}  {headline(closed)}")
    return 0
