"""`retinue runs steer`, `runs stop`, `runs background` and `runs resume`: commands to runs."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.app.feed import CommandAnswer, CommandRefusedError, Feed
from retinue.app.places import project_of
from retinue.app.snapshot import find_stoppable
from retinue.app.task_input import read_task
from retinue.core.delegation import LIVE
from retinue.core.run_state import RunState
from retinue.errors import UsageError
from retinue.faces.cli.project import add_cwd, add_run, add_where, folder, locate, say, write_values
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

BY = ""
"""The person at this terminal."""
ENDING_SECONDS = 5.0
POLL_SECONDS = 0.05


def give(verb: Coroutine[Any, Any, CommandAnswer]) -> CommandAnswer:
    """Return what became of a command; a refusal is printed as an answer, not as an error."""
    try:
        return asyncio.run(verb)
    except CommandRefusedError as refused:
        return refused.answer


async def until_ended(feed: Feed, run_ids: Sequence[str], seconds: float = ENDING_SECONDS) -> dict[str, str]:
    """Return how each run stands once all have ended, or after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        rows: list[RunState] = await feed.read(lambda reader: [reader.run(run_id) for run_id in run_ids])
        over = all(row.state not in LIVE for row in rows)
        if over or asyncio.get_running_loop().time() >= deadline:
            return {row.id: row.ended or row.state for row in rows}
        # Another process writes the log: there is nothing to await but its next row.
        await asyncio.sleep(POLL_SECONDS)


def report(answers: Sequence[CommandAnswer], *, as_json: bool, statuses: dict[str, str] | None = None) -> int:
    """Print what became of each command. Return 1 unless all were accepted."""
    known = statuses or {}
    if as_json:
        results = [
            {"run": each.run_id, "accepted": each.accepted, "answer": each.text, "status": known.get(each.run_id)}
            for each in answers
        ]
        write_values({"results": results})
    else:
        for each in answers:
            if each.accepted:
                print(f"{each.run_id}  {known.get(each.run_id) or each.text}")
            else:
                say(f"{each.run_id}  {each.text}")
    return int(not all(each.accepted for each in answers))


def configure_steer(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("message", metavar="MESSAGE", help="what to say: words, @file, or - for standard input")
    add_where(parser)


def execute_steer(args: argparse.Namespace) -> int:
    """Say something to a run of any process. It reads it after its current tool calls.

    MESSAGE is the text itself, @file, or - for standard input.

        retinue runs steer 3f2a9c1d "Only look in src/"
        retinue runs steer @explore "And the tests, too"
        git diff | retinue runs steer 3f2a9c1d -
    """
    state, row = locate(args)
    feed = Feed(Path(row.cwd), state)
    said = read_task(args.message, "message")
    if feed.redact(said) is not said:
        say("retinue: a secret in the message was taken out; give it to the agent in a file")
    return report([give(feed.say(row.id, said, by=BY))], as_json=args.json)


def configure_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", nargs="?", help="id of the run, its beginning, or @name")
    parser.add_argument("--tree", action="store_true", help="also all runs it has started, and theirs")
    parser.add_argument("--all", action="store_true", help="every run of this project, of all processes")
    add_where(parser)


def execute_stop(args: argparse.Namespace) -> int:
    """Stop a run of any process. It keeps what it has said and can be resumed. Of a run whose process
    died, commands that still run are ended.

    retinue runs stop 3f2a9c1d
    retinue runs stop 3f2a9c1d --tree      (with everything it has started)
    retinue runs stop --all                (every run of this project)
    """
    if (args.run is None) == (not args.all):
        raise UsageError("Say which run to stop.", remedy="Give one ID, or --all. See: retinue runs list")
    return asyncio.run(_stop(args))


async def _stop(args: argparse.Namespace) -> int:
    feed, targets = await _targets(args)
    if not targets:
        say("Nothing is running here.")
        return report([], as_json=args.json)
    answers = await feed.stop_runs(targets, by=BY, tree=args.tree)
    if all(row.state == "interrupted" for row in targets):
        return report(answers, as_json=args.json)
    if not (args.tree or args.all):
        accepted = [answer.run_id for answer in answers if answer.accepted]
        return report(answers, as_json=args.json, statuses=await until_ended(feed, accepted))
    statuses = await until_ended(feed, [row.id for row in targets if row.state in LIVE])
    for number, answer in enumerate(answers):
        # A run that ended by itself, or with the one before it, is as stopped as was wanted.
        if statuses.get(answer.run_id, "running") not in LIVE:
            answers[number] = replace(answer, accepted=True)
    return report(answers, as_json=args.json, statuses=statuses)


async def _targets(args: argparse.Namespace) -> tuple[Feed, list[RunState]]:
    if args.all:
        feed = Feed(folder(args.cwd))
        return feed, (await feed.snapshot(states=LIVE)).runs[::-1]
    state, row = locate(args)
    feed = Feed(Path(row.cwd), state)
    return feed, await feed.read(find_stoppable, row.id, tree=args.tree)


def configure_background(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_where(parser)


def execute_background(args: argparse.Namespace) -> int:
    """Move a run that another one waits for to the background: that one goes on, and is told when the
    run has ended.

    retinue runs background 3f2a9c1d
    retinue runs background @explore
    """
    state, row = locate(args)
    feed = Feed(Path(row.cwd), state)
    return report([give(feed.to_background(row.id, by=BY))], as_json=args.json)


def configure_resume(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="what to say to it: words, @file or -")
    parser.add_argument("--model", metavar="MODEL", help="go on with this model, of any provider")
    add_output(parser)
    add_limits(parser)
    add_cwd(parser)
    add_trust(parser)
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
    from retinue.faces.cli.console.foreground import drive

    output = output_of(args)

    async def work() -> int:
        state, row = locate(args)
        prompt = None
        if args.prompt is not None:
            prompt = read_task(args.prompt, "prompt")
        async with open_retinue(args, project_of(state, row)) as retinue:
            limits, budget = limits_of(args) or None, budget_of(args)
            run = await retinue.resume(row.id, prompt, model=args.model, limits=limits, budget=budget)
            return await drive(retinue, run, output, quiet=args.quiet)

    return guarded(work, output)
