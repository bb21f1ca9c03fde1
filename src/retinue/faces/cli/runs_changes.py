"""`retinue runs effects`, `runs undo` and `runs prune`."""

from __future__ import annotations

import argparse

from retinue.app.changes import (
    CallEffect,
    PruneReport,
    RunEffects,
    UndoReport,
    prune_runs,
    read_effects,
    undo_run,
)
from retinue.app.text import EFFECT_SIGNS, effect_notes, local_time, optional, reads_text, short_path
from retinue.core.controls import in_line, visible
from retinue.core.format import relative as undo_path
from retinue.core.run_state import RunState
from retinue.faces.cli.project import add_run, add_where, count, locate, project, say, write_values

_DAY = "%Y-%m-%d"
_WORDS = {
    "restored": "restored",
    "removed": "removed",
    "unchanged": "as it was",
    "kept": "KEPT",
    "failed": "FAILED",
}


def configure_effects(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "id of the run, or its beginning")
    parser.add_argument("--tree", action="store_true", help="also all runs it has started, and theirs")
    add_where(parser)


def execute_effects(args: argparse.Namespace) -> int:
    """What a run really did: files read and written, commands with their exit codes, hosts, what
    was denied and who allowed the rest, and calls whose effect nobody knows.

    retinue runs effects 3f2a9c1d
    retinue runs effects 3f2a9c1d --tree       (with the runs it has started)
    retinue runs effects 3f2a9c1d --json
    """
    folder, row = locate(args)
    effects, rows, pruned = read_effects(folder, row, tree=args.tree)
    for run_id in pruned:
        say(f"The events of run {run_id} were removed to save space: not all that it did is known.")
    if args.json:
        write_values(effects)
        return 0
    for each, effect in zip(rows, effects.runs, strict=True):
        print(visible("\n".join(_effect_lines(each, effect))))
    return 0


def _effect_lines(row: RunState, effects: RunEffects) -> list[str]:
    lines = [f"{row.agent}  run {row.id}  in {row.cwd}"]
    for turn in effects.turns:
        lines.append(f"turn {turn.turn}")
        reads = reads_text(turn, row.cwd)
        if reads:
            lines.append(f"  read   {reads}")
        for call in turn.calls:
            lines += _call_lines(call, row.cwd)
    if not effects.turns:
        lines.append("  no tool calls")
    for undone in effects.undone:
        count = len(undone.restored) + len(undone.removed)
        since = optional(" from turn {} on", undone.turn)
        lines.append(f"undone by {undone.by}{since}: {count} files put back, {len(undone.kept)} kept")
    return lines


def _call_lines(call: CallEffect, cwd: str) -> list[str]:
    if call.reads and not call.writes and call.status == "finished":
        return []
    what = " ".join((call.command or "").split())[:160]
    head = f"  {call.tool:<6} {what}"
    if call.exit_code is not None:
        head += f"  → exit {call.exit_code}"
    head = head.rstrip()
    lines: list[str] = []
    if call.status == "denied":
        lines.append(f"  DENIED {call.tool} {what}: {call.denied}")
    elif call.status == "unknown":
        lines.append(f"  UNKNOWN EFFECT {call.tool} {what}".rstrip() + ": it started and never reported back")
    elif call.status == "failed" and call.exit_code is None:
        lines.append(f"{head}  (failed)")
    elif call.status == "running":
        lines.append(f"{head}  (running)")
    elif call.command is not None or call.hosts:
        lines.append(head)
    for each in call.writes:
        lines.append(f"  write  {EFFECT_SIGNS[each.status]} {short_path(each.path, cwd)}")
    for name, text in effect_notes(call).items():
        lines.append(f"    {name:<8} {text}")
    return lines


def configure_undo(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "id of the run, or its beginning")
    parser.add_argument("--turn", type=int, metavar="N", help="only what it did in turn N and later")
    parser.add_argument("--tree", action="store_true", help="also what the runs it has started did")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--force", action="store_true", help="also overwrite what others have changed since")
    add_where(parser)


def execute_undo(args: argparse.Namespace) -> int:
    """Put back the files a run has changed, to how they were before it or before one of its turns.

    What someone else has changed since, a person or another run, is left alone and named; --force
    overwrites it, and keeps a copy in the shadow repository. Files the run deleted come back, files
    it created go, modes and links are kept. What it did elsewhere (databases, other hosts, files
    outside its workspace) is not undone: see `retinue runs effects`.

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
        say(f"Not undone: what it did before {local_time(report.forgotten, _DAY)}, when its checkpoints were removed.")
    return int(report.incomplete)


def _print_undo(row: RunState, report: UndoReport) -> None:
    for file in report.files:
        path = in_line(undo_path(file.path, row.cwd))
        print(f"{_WORDS[file.fate]:<10} {path}{optional('  ({})', file.detail)}")
    if not report.files:
        say("Nothing to undo: the record has no file that this run changed.")
    elif report.dry_run:
        say("Nothing was changed (--dry-run).")
    if any(file.fate == "kept" for file in report.files) and not report.forced:
        say("Kept files were left alone. To put them back all the same: --force")


def configure_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", type=count, default=30, metavar="DAYS", help="(default: %(default)s)")
    parser.add_argument("--events", action="store_true", help="also what the runs said and read: they cannot go on")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_where(parser)


def execute_prune(args: argparse.Namespace) -> int:
    """Remove what runs of long ago have left on the disk, and keep what they did.

    Of trees of runs in which nothing has happened for that many days, checkpoints, long outputs of tools
    and transcript files go: they cannot be undone any more. The log stays, so they are still listed,
    shown, counted and can go on. Runs at work, and runs with a worktree, are left alone.

    With --events the log shrinks, too: of these runs it keeps what they were asked, how they ended, and what they used
    in sum. The setting `log.keepDays` does the same once a day, and leaves the space to new runs.

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
