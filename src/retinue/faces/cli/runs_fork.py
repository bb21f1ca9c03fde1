"""`retinue runs fork`: back to a moment of a run, and on from there as a new one."""

from __future__ import annotations

import argparse

from retinue.evidence.fork import fork_run
from retinue.faces.cli.project import add_cwd, add_run, count, locate, project_of, read_task, say
from retinue.faces.cli.run import (
    add_limits,
    add_output,
    add_trust,
    budget_of,
    guarded,
    limits_of,
    open_retinue,
    output_of,
)
from retinue.faces.text import optional, visible


def configure_fork(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--at", type=count, required=True, metavar="SEQ", help="the last event that counts")
    parser.add_argument("--edit", metavar="TEXT", help="what is said there instead, or next: words, @file or -")
    parser.add_argument("--model", metavar="MODEL", help="go on with this model, of any provider")
    parser.add_argument("--keep-files", action="store_true", help="leave the files as they are now")
    add_output(parser)
    add_limits(parser)
    add_cwd(parser)
    add_trust(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error, only warnings")


def execute_fork(args: argparse.Namespace) -> int:
    """Go back to a moment of a run, change something, and go on from there as a new run; the old one stays as it is.

    At a message of a person --edit replaces it; elsewhere it is said next. Files that the old run has changed after
    that moment are put back where checkpoints have them and nobody else has changed them since.

        retinue runs show 3f2a9c1d --json         (lists the events with their numbers)
        retinue runs fork 3f2a9c1d --at 12 --edit "Only look in src/"
        retinue runs fork 3f2a9c1d --at 12 --model opus --keep-files
    """
    from retinue.faces.cli.foreground import drive

    output = output_of(args)

    async def work() -> int:
        state, row = locate(args)
        edit = None if args.edit is None else read_task(args.edit, "edit")
        async with open_retinue(args, project_of(state, row)) as retinue:
            project = retinue.supervisor.project
            fork = await fork_run(project, row.id, args.at, edit=edit, keep_files=args.keep_files)
            say(f"Forked from {row.id[:8]} at event {fork.at} as {fork.run_id}.")
            for each in fork.files:
                say(visible(f"  {each.fate}: {each.path}{optional(' ({})', each.detail)}"))
            limits, budget = limits_of(args) or None, budget_of(args)
            run = await retinue.resume(fork.run_id, fork.prompt, model=args.model, limits=limits, budget=budget)
            return await drive(retinue, run, output, quiet=args.quiet)

    return guarded(work, output)
