from __future__ import annotations

import argparse

from retinue.faces.cli.run import add_limits, guarded
from retinue.faces.cli.runs.common import locate, project_of
from retinue.faces.cli.task import read_task


def configure_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="what to say to it: words, @file or -")
    parser.add_argument("--model", metavar="MODEL", help="go on with this model, of any provider")
    parser.add_argument("--json", action="store_true", help="print the result object as one JSON document")
    parser.add_argument("--mode", choices=["text", "json"], default="text", help="json: every event as a JSON line")
    add_limits(parser)
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--trust", action="store_true", help="let the project's hooks, servers and rights take effect")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error, only warnings")


def execute_resume(args: argparse.Namespace) -> int:
    """Go on with a run that was interrupted, stopped or has ended.

    It keeps its definition, tools, depth and folder, and its model unless another is named; finished
    tool calls are not repeated, and calls whose effect is unknown are named to the agent. Its limits and
    its budget apply again, but for those that are given here.

        retinue runs resume 3f2a9c1d
        retinue runs resume 3f2a9c1d --model gemini/gemini-3.8-flash
        retinue runs resume 3f2a9c1d "Now look at the tests, too"
    """
    from retinue.faces.cli.foreground import Output, drive
    from retinue.faces.cli.requests import budget_of, limits_of, open_crew

    output: Output = "events" if args.mode == "json" else "result" if args.json else "text"

    async def work() -> int:
        state, row = locate(args)
        prompt = read_task(args.prompt, "prompt") if args.prompt is not None else None
        async with open_crew(args, project_of(state, row)) as crew:
            limits, budget = limits_of(args) or None, budget_of(args)
            run = await crew.resume(row.id, prompt, model=args.model, limits=limits, budget=budget)
            return await drive(crew, run, output, quiet=args.quiet)

    return guarded(work, output)
