"""Talk to the main agent without a terminal app: one prompt in, one answer out.

    retinue -p "What does this project do?"
    retinue -p @task.md --output-format json
    retinue -p "And the tests?" --resume 3f2a9c1d

PROMPT is the text itself, @file, or - for standard input. Progress goes to standard error.
"""

from __future__ import annotations

import argparse

from retinue.errors import UsageError
from retinue.faces.cli.run import add_run_options, guarded
from retinue.faces.cli.task import folder, read_task


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
    parser.add_argument(
        "--permission-mode",
        choices=["default", "acceptEdits", "plan", "bypassPermissions"],
        help="plan: only tools that read; the others do not ask either in this version",
    )
    add_run_options(parser)


def execute(args: argparse.Namespace) -> int:
    from retinue.faces.cli.foreground import Output, drive
    from retinue.faces.cli.requests import limits_of, open_crew

    if args.prompt is None:
        raise UsageError("There is no prompt.", remedy="Say what to do: retinue -p 'What does this project do?'")
    prompt, cwd = read_task(args.prompt), folder(args.cwd)
    formats: dict[str, Output] = {"text": "text", "json": "summary", "stream-json": "events"}

    async def work() -> int:
        async with open_crew(args, cwd) as crew:
            if args.resume:
                run = await crew.resume(args.resume, prompt, limits=limits_of(args) or None)
            else:
                run = await crew.prompt(
                    prompt,
                    agent=args.agent,
                    model=args.model,
                    thinking=args.thinking,
                    limits=limits_of(args),
                    permission_mode=args.permission_mode,
                )
            return await drive(run, formats[args.output_format], quiet=args.quiet)

    return guarded(work, as_json=False)
