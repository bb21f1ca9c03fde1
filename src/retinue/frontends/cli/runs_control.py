"""`retinue runs steer`, `stop`, `background`, `resume`, `undo` and `prune`: commands for runs and
for their data."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.app.changes import PruneReport, UndoReport, prune_runs, undo_run
from retinue.app.feed import CommandAnswer, CommandRefusedError, Feed
from retinue.app.lookup import project_of
from retinue.app.session_options import read_task
from retinue.app.snapshot import find_stoppable
from retinue.app.text import local_time, optional
from retinue.app.views import list_results
from retinue.app.watch import wait_until_ended
from retinue.core.controls import in_line
from retinue.core.delegation import LIVE, Status
from retinue.core.format import relative as undo_path
from retinue.core.run_state import RunState
from retinue.errors import UsageError
from retinue.frontends.cli.project import add_run, add_where, count, folder, locate, project, say, write_values
from retinue.frontends.cli.run import add_continuation, open_retinue, output_of, resume_run, run_guarded

PERSON_NAME = ""
"""The person at this terminal."""
ENDING_SECONDS = 5.0


def send_command(verb: Coroutine[Any, Any, CommandAnswer]) -> CommandAnswer:
    """Return the answer to a command, including a refusal."""
    try:
        return asyncio.run(verb)
    except CommandRefusedError as refused:
        return refused.answer


async def until_ended(feed: Feed, run_ids: Sequence[str]) -> dict[str, Status]:
    """Return the status of each run once all have ended, or after a few seconds."""
    rows = await wait_until_ended(feed, run_ids, ENDING_SECONDS)
    return {row.id: row.status for row in rows}


def print_results(
    answers: Sequence[CommandAnswer], *, as_json: bool, statuses: Mapping[str, Status] | None = None
) -> int:
    """Print the answer to each command. Return 1 unless all were accepted."""
    results = list_results(answers, statuses or {})
    if as_json:
        write_values(results)
    else:
        for result in results.results:
            if result.accepted:
                print(f"{result.run}  {result.status or result.answer}")
            else:
                say(f"{result.run}  {result.answer}")
    return int(not all(answer.accepted for answer in answers))


def configure_steer(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("message", metavar="MESSAGE", help="the message: text, @file, or - for standard input")
    add_where(parser)


def execute_steer(args: argparse.Namespace) -> int:
    """Send a message to a run of any process, which reads it after its current tool calls.

    MESSAGE is the text itself, @file, or - for standard input.

        retinue runs steer 3f2a9c1d "Only look in src/"
        retinue runs steer @explore "Also look at the tests"
        git diff | retinue runs steer 3f2a9c1d -
    """
    state, row = locate(args)
    feed = Feed(Path(row.cwd), state)
    message = read_task(args.message, "message")
    if feed.redact(message) is not message:
        say("retinue: a secret in the message was taken out; give it to the agent in a file")
    return print_results([send_command(feed.say(row.id, message, by=PERSON_NAME))], as_json=args.json)


def configure_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", nargs="?", help="id of the run, a prefix of it, or @name")
    parser.add_argument("--tree", action="store_true", help="include all runs below it")
    parser.add_argument("--all", action="store_true", help="every run of this project, of all processes")
    add_where(parser)


def execute_stop(args: argparse.Namespace) -> int:
    """Stop a run of any process. It keeps its answers so far and can be resumed. If its process
    died, its remaining commands are ended.

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
        return print_results([], as_json=args.json)
    answers = await feed.stop_runs(targets, by=PERSON_NAME, tree=args.tree)
    if all(row.state == "interrupted" for row in targets):
        return print_results(answers, as_json=args.json)
    if not (args.tree or args.all):
        accepted = [answer.run_id for answer in answers if answer.accepted]
        return print_results(answers, as_json=args.json, statuses=await until_ended(feed, accepted))
    statuses = await until_ended(feed, [row.id for row in targets if row.state in LIVE])
    for number, answer in enumerate(answers):
        # A run that ended meanwhile counts as stopped.
        if statuses.get(answer.run_id, "running") not in LIVE:
            answers[number] = replace(answer, accepted=True)
    return print_results(answers, as_json=args.json, statuses=statuses)


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
    """Move a run that its parent waits for to the background: the parent continues, and is notified
    when the run has ended.

        retinue runs background 3f2a9c1d
        retinue runs background @explore
    """
    state, row = locate(args)
    feed = Feed(Path(row.cwd), state)
    return print_results([send_command(feed.to_background(row.id, by=PERSON_NAME))], as_json=args.json)


def configure_resume(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="a message for the run: text, @file or -")
    add_continuation(parser)


def execute_resume(args: argparse.Namespace) -> int:
    """Resume a run that was interrupted, stopped or has ended.

    It keeps its definition, tools, depth and folder, and its model unless another is named.
    Finished tool calls are not repeated, and the agent is told which calls have unknown effects.
    Its limits and its budget apply again, except for those given here.

        retinue runs resume 3f2a9c1d
        retinue runs resume 3f2a9c1d --model gemini/gemini-3.8-flash
        retinue runs resume 3f2a9c1d "Now look at the tests as well"
    """

    async def work() -> int:
        state, row = locate(args)
        prompt = None
        if args.prompt is not None:
            prompt = read_task(args.prompt, "prompt")
        async with open_retinue(args, project_of(state, row)) as retinue:
            return await resume_run(retinue, row.id, prompt, args)

    return run_guarded(work, output_of(args))


_DATE_FORMAT = "%Y-%m-%d"
_FATE_WORDS = {
    "restored": "restored",
    "removed": "removed",
    "unchanged": "as it was",
    "kept": "KEPT",
    "failed": "FAILED",
}


def configure_undo(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "id of the run, or a prefix of it")
    parser.add_argument("--turn", type=int, metavar="N", help="only changes of turn N and later")
    parser.add_argument("--tree", action="store_true", help="include the runs below it")
    parser.add_argument("--dry-run", action="store_true", help="only print what would happen")
    parser.add_argument("--force", action="store_true", help="also overwrite later changes of others")
    add_where(parser)


def execute_undo(args: argparse.Namespace) -> int:
    """Restore the files a run has changed to their state before it, or before one of its turns.

    Files that someone else has changed since, a person or another run, are kept and listed; --force
    overwrites them, and stores a copy in the shadow repository. Files the run deleted are restored,
    files it created are removed, modes and links are preserved. Other effects (databases, other
    hosts, files outside its workspace) are not undone: see `retinue runs effects`.

        retinue runs undo 3f2a9c1d --dry-run
        retinue runs undo 3f2a9c1d
        retinue runs undo 3f2a9c1d --turn 4        (what it did in turn 4 and later)
        retinue runs undo 3f2a9c1d --tree          (with the runs it has started)
    """
    folder, row = locate(args)
    report = undo_run(folder, row, turn=args.turn, tree=args.tree, force=args.force, dry_run=args.dry_run)
    if args.json:
        write_values(report)
    else:
        _print_undo(row, report)
    if report.forgotten:
        removed = local_time(report.forgotten, _DATE_FORMAT)
        say(f"Changes before {removed} were not undone: their checkpoints were removed then.")
    return int(report.incomplete)


def _print_undo(row: RunState, report: UndoReport) -> None:
    for file in report.files:
        path = in_line(undo_path(file.path, row.cwd))
        print(f"{_FATE_WORDS[file.fate]:<10} {path}{optional('  ({})', file.detail)}")
    if not report.files:
        say("Nothing to undo: the record has no file that this run changed.")
    elif report.dry_run:
        say("Nothing was changed (--dry-run).")
    if any(file.fate == "kept" and not file.moved for file in report.files) and not report.forced:
        say("Kept files were not changed. To restore them anyway: --force")


def configure_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", type=count, default=30, metavar="DAYS", help="(default: %(default)s)")
    parser.add_argument("--events", action="store_true", help="also their messages and results: they cannot be resumed")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    add_where(parser)


def execute_prune(args: argparse.Namespace) -> int:
    """Remove data of old runs from the disk, but not their history.

    For run trees without activity for that many days, checkpoints, long tool outputs and transcript
    files are removed, so they can no longer be undone. Their logs remain, so they are still listed,
    shown, counted and can be resumed. Running runs, and runs with a worktree, are kept.

    --events also reduces the logs of these runs to their tasks, their endings and their total
    usage. The setting `log.keepDays` does the same once a day, and leaves the freed space to new
    runs.

        retinue runs prune --dry-run
        retinue runs prune --older-than 90
        retinue runs prune --older-than 90 --events
    """
    report = prune_runs(project(args), args.older_than, events=args.events, dry_run=args.dry_run)
    if args.json:
        write_values(report)
    else:
        _print_prune(report, args.older_than)
    return 0


def _print_prune(report: PruneReport, days: int) -> None:
    if not (report.checkpoints_of or report.files or report.events_of):
        print(f"Nothing to remove: {report.runs} runs are older than {days} days.")
        return
    verb = "would be removed" if report.dry_run else "removed"
    size = f"{report.bytes / 2**20:.1f} MB"
    print(f"{verb}: checkpoints of {report.checkpoints_of} runs, {report.files} outputs and transcripts ({size})")
    if not report.events_of:
        return
    if report.dry_run:
        print(f"{verb}: the events of {report.events_of} runs")
        return
    smaller = f"{(report.log_bytes or 0) / 2**20:.1f} MB"
    print(f"{verb}: {report.events} events of {report.events_of} runs; the log is {smaller} smaller")
    if report.log_busy:
        say("The disk did not get all space back: another process uses the log, or a server keeps it. New runs use it.")
