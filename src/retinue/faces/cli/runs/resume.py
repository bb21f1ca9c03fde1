"""Go on with a run that was interrupted, stopped or has ended.

It keeps its definition, model, tools, depth and folder; finished tool calls are not repeated, and
calls whose effect is unknown are named to the agent.

    retinue runs resume 3f2a9c1d
    retinue runs resume 3f2a9c1d "Now look at the tests, too"
"""

from __future__ import annotations

import argparse

from retinue.faces.cli.run import count, guarded, seconds
from retinue.faces.cli.runs.common import locate, project_of
from retinue.faces.cli.task import read_task


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="what to say to it: words, @file or -")
    parser.add_argument("--json", action="store_true", help="print the result object as one JSON document")
    parser.add_argument("--mode", choices=["text", "json"], default="text", help="json: every event as a JSON line")
    parser.add_argument("--max-turns", type=count, metavar="N", help="another turn limit than before; 0: none")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="another time limit than before")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--trust", action="store_true", help="let the project's hooks, servers and rights take effect")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error, only warnings")
    parser.set_defaults(max_budget_usd=None)


def execute(args: argparse.Namespace) -> int:
    from retinue.faces.cli.foreground import Output, drive
    from retinue.faces.cli.requests import limits_of, open_crew

    state, row = locate(args)
    folder = project_of(state, row)
    prompt = read_task(args.prompt) if args.prompt is not None else None
    output: Output = "events" if args.mode == "json" else "result" if args.json else "text"

    async def work() -> int:
        async with open_crew(args, folder) as crew:
            run = await crew.resume(row.id, prompt, limits=limits_of(args) or None)
            return await drive(run, output, quiet=args.quiet)

    return guarded(work, as_json=args.json)
