"""Run one agent in the foreground and print its answer.

TASK is the text of the task, @file to read it from a file, or - to read standard input.

    retinue run explorer "Where are requests authenticated?"
    retinue run reviewer @change.diff --model anthropic/claude-sonnet-4-5
    git diff | retinue run reviewer - --json

Progress goes to standard error, the answer to standard output. Ctrl-C stops the run, keeps what
it has said, and `retinue runs resume ID` goes on from there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, get_args

from retinue.core.spec import PermissionMode
from retinue.errors import RetinueError, UsageError
from retinue.faces.cli.options import amount, count, positive
from retinue.faces.cli.project import folder, read_schema, read_task

if TYPE_CHECKING:
    from retinue.faces.cli.foreground import Output


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="name of the agent: retinue agents list")
    parser.add_argument("task", metavar="TASK", help="the task: words, @file, or - for standard input")
    parser.add_argument("--json", action="store_true", help="print the result object as one JSON document")
    parser.add_argument("--mode", choices=["text", "json"], default="text", help="json: every event as a JSON line")
    add_run_options(parser)
    parser.add_argument("--isolation", choices=["worktree"], help="work in a copy of the repository")
    parser.add_argument("--schema", metavar="FILE", help="JSON Schema that the answer must match")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What `run` and the headless main agent have in common."""
    parser.add_argument("--model", metavar="M", help="provider/model or a part of its name: retinue models list")
    parser.add_argument("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high, xhigh or max")
    add_limits(parser)
    parser.add_argument(
        "--permission-mode",
        choices=get_args(PermissionMode),
        help="default: reads run, the rest asks; acceptEdits: edits run, too; plan: only reads; dontAsk: what is not "
        "allowed by a rule is denied; auto: a classifier decides; bypassPermissions: everything runs",
    )
    parser.add_argument("--cwd", metavar="DIR", help="work in this folder instead of the current one")
    parser.add_argument("--agents", metavar="JSON", help="more agents, as Claude Code's --agents takes them")
    parser.add_argument("--trust", action="store_true", help="let the project's hooks, servers and rights take effect")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error, only warnings")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """What a run may use up; a run that is resumed may get more."""
    parser.add_argument("--max-turns", type=count, metavar="N", help="ask to wrap up after N turns; 0: no limit")
    parser.add_argument("--timeout", type=positive, metavar="SECONDS", help="end the run after this time (exit 124)")
    parser.add_argument(
        "--max-budget-usd", type=amount, metavar="X", help="what it and all agents below it may cost together"
    )
    parser.add_argument(
        "--budget",
        action="append",
        metavar="KIND=N,…",
        help="what it and all agents below it may use together: tokens, usd, turns, toolCalls, seconds, spawns",
    )


def execute(args: argparse.Namespace) -> int:
    from retinue.faces.cli.asking import budget_of, limits_of, open_retinue
    from retinue.faces.cli.foreground import drive

    output: Output = "events" if args.mode == "json" else "result" if args.json else "text"

    async def work() -> int:
        if not args.agent.strip():
            raise UsageError("The name of the agent is empty.", remedy="See which there are: retinue agents list")
        task, schema, cwd = read_task(args.task), read_schema(args.schema), folder(args.cwd)
        async with open_retinue(args, cwd) as retinue:
            run = await retinue.spawn(
                args.agent,
                task,
                model=args.model,
                thinking=args.thinking,
                limits=limits_of(args),
                budget=budget_of(args),
                schema=schema,
                isolation=args.isolation,
                background=False,
            )
            return await drive(retinue, run, output, quiet=args.quiet)

    return guarded(work, output)


def guarded(work: Callable[[], Coroutine[None, None, int]], output: Output) -> int:
    """Run `work` on an event loop. With JSON on stdout even a refusal is a document of that kind."""
    try:
        return asyncio.run(work())
    except RetinueError as error:
        if output != "text":
            from retinue.faces.cli.documents import refusal

            print(refusal(error, output), flush=True)
        raise
    except asyncio.CancelledError:
        print("retinue: stopped; see `retinue runs list`", file=sys.stderr)
        return 130
