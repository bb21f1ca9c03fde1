"""Talk to the main agent without a terminal app: one prompt in, one answer out.

    retinue -p "What does this project do?"
    retinue -p @task.md --output-format json
    retinue -p "And the tests?" --resume 3f2a9c1d
    retinue -p "@explore And the tests?" --resume 3f2a9c1d

PROMPT is the text itself, @file, or - for standard input. Progress goes to standard error. With
--resume, `@name message` goes to the agent of that name which the run had started: while it works
it hears it there, and otherwise it goes on and its answer is printed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.errors import UsageError
from retinue.faces.cli.project import folder, read_task
from retinue.faces.cli.run import add_run_options, guarded

if TYPE_CHECKING:
    from retinue.faces.api import MessageReceipt


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        "--print",
        dest="prompt",
        metavar="PROMPT",
        nargs="?",
        const="-",
        help="words, @file, or - (or nothing): stdin",
    )
    parser.add_argument(
        "--output-format",
        choices=["text", "json", "stream-json"],
        default="text",
        help="json: one document; stream-json: every event as a line, the outcome last",
    )
    parser.add_argument("--agent", metavar="NAME", help="talk to this agent instead of the main one")
    parser.add_argument("--resume", metavar="ID", help="go on with an earlier run")
    add_run_options(parser)


def execute(args: argparse.Namespace) -> int:
    from retinue.faces.cli.asking import budget_of, limits_of, open_retinue
    from retinue.faces.cli.foreground import Output, drive

    formats: dict[str, Output] = {"text": "text", "json": "summary", "stream-json": "events"}

    async def work() -> int:
        if args.prompt is None:
            raise UsageError("There is no prompt.", remedy="Say what to do: retinue -p 'What does this project do?'")
        prompt, limits, budget = _prompt(args.prompt), limits_of(args), budget_of(args)
        async with open_retinue(args, folder(args.cwd)) as retinue:
            if args.resume:
                _say_what_is_kept(args)
                said = await retinue.say(prompt, to=args.resume, model=args.model, limits=limits or None, budget=budget)
                if said.run is None:
                    return _delivered(said, args.output_format)
                run = said.run
            else:
                run = await retinue.prompt(
                    prompt,
                    agent=args.agent,
                    model=args.model,
                    thinking=args.thinking,
                    limits=limits,
                    budget=budget,
                )
            return await drive(retinue, run, formats[args.output_format], quiet=args.quiet)

    return guarded(work, formats[args.output_format])


def _delivered(said: MessageReceipt, form: str) -> int:
    """An agent of another process has it: there is no answer to wait for here."""
    print(f"retinue: {said.agent} has it and goes on where it runs", file=sys.stderr)
    if form != "text":
        from retinue.faces.cli.documents import delivered_summary

        print(delivered_summary(said.run_id, said.agent))
    return 0


def _say_what_is_kept(args: argparse.Namespace) -> None:
    given = {"--agent": args.agent, "--thinking": args.thinking, "--permission-mode": args.permission_mode}
    ignored = [name for name, value in given.items() if value is not None]
    if ignored:
        print(f"retinue: {', '.join(ignored)} ignored: a resumed run keeps what it had", file=sys.stderr)


def _prompt(value: str) -> str:
    """`@name message` is no file name, unless there is such a file."""
    from retinue.runs.handles import parse_mention

    named = value[1:]
    if parse_mention(value) is not None and not ("\n" not in named and Path(named).expanduser().exists()):
        return value
    return read_task(value, "prompt")
