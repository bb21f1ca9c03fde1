"""`retinue runs effects`, `runs undo` and `runs prune`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.capabilities.audit.report import CallEffect, RunEffects, WriteStatus, WrittenFile, effects_of
from retinue.capabilities.audit.undo import Undo, UndoneFile, UndoScope
from retinue.core.controls import in_line, visible
from retinue.core.delegation import LIVE
from retinue.core.events import TurnStarted
from retinue.core.format import relative as undo_path
from retinue.errors import StateError, UsageError
from retinue.faces.cli.project import add_run, add_where, count, locate, project, say, write_values
from retinue.faces.text import EFFECT_SIGNS, effect_notes, local_time, optional, reads_text, short_path
from retinue.log.query import LogReader
from retinue.log.rows import RunRow
from retinue.models.keys import environment as process_environment

if TYPE_CHECKING:
    from retinue.log.prune import PrunedEvents

_SECONDS = 3600.0
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
    with LogReader.open(folder) as reader:
        rows = reader.tree(row) if args.tree else [row]
        found = [(each, run_effects(reader, folder, each)) for each in rows]
        pruned = [each.id for each in rows if any(reader.ordered(each.id, ("run.pruned",)))]
    for run_id in pruned:
        say(f"The events of run {run_id} were removed to save space: not all that it did is known.")
    if args.json:
        write_values({"runs": [effects for _, effects in found]})
        return 0
    for each, effects in found:
        print(visible("\n".join(_effect_lines(each, effects))))
    return 0


def run_effects(reader: LogReader, folder: Path, row: RunRow) -> RunEffects:
    meanwhile = _meanwhile(folder, row.id)
    return effects_of(reader.events(row.id), row.id, row.agent, live=row.state in LIVE, meanwhile=meanwhile)


def _meanwhile(folder: Path, run_id: str) -> dict[str, tuple[WrittenFile, ...]]:
    """Return what the ledger knows of calls that never reported: they were cut off, or cancelled."""
    if not (folder / "checkpoints" / "ledger.db").is_file():
        return {}
    undo = Undo(folder)
    try:
        rows = undo.changed([run_id])
    finally:
        undo.close()
    found: dict[str, tuple[WrittenFile, ...]] = {}
    for change in rows:
        states = [state for state in (change.before, change.after) if state is not None]
        if change.kind == "undo" or any(state.is_folder for state in states):
            continue
        status: WriteStatus = "changed"
        if change.after is None:
            status = "deleted"
        elif change.before is None:
            status = "created"
        one = WrittenFile(change.path, status, None, change.after_hash)
        found[change.call_id] = (*found.get(change.call_id, ()), one)
    return found


def _effect_lines(row: RunRow, effects: RunEffects) -> list[str]:
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
    if args.turn is not None and args.turn < 1:
        raise UsageError("Turns count from 1.", remedy="See: retinue runs effects ID")
    folder, row = locate(args)
    with LogReader.open(folder) as reader:
        rows = reader.tree(row) if args.tree else [row]
        for each in rows:
            if each.state in LIVE:
                tree = " --tree" if args.tree else ""
                raise StateError(
                    f"Run {each.id} ({each.agent}) is still running.",
                    remedy=f"Stop it first: retinue runs stop {row.id[:8]}{tree}",
                )
        scope = _scope(reader, row, rows[1:], args.turn)
    done: list[UndoneFile] = []
    forgotten = None
    # Looking makes nothing: a project in which nothing was changed has no ledger.
    if (folder / "checkpoints" / "ledger.db").is_file():
        with closing(Undo(folder)) as undo:
            done = undo.run(scope, force=args.force, dry_run=args.dry_run)
            forgotten = undo.forgotten(scope.runs)
        done = _explain_worktrees(folder, done)
    if forgotten is not None and not done:
        raise StateError(
            f"Run {row.id} cannot be undone any more: its checkpoints were removed on {local_time(forgotten, _DAY)}.",
            remedy=f"How long they are kept: checkpoints.keepDays. What it changed: retinue runs effects {row.id[:8]}",
        )
    if done and not args.dry_run:
        _record(folder, row, done, args)
    _report_undo(row, done, args)
    if forgotten is not None:
        say(f"Not undone: what it did before {local_time(forgotten, _DAY)}, when its checkpoints were removed.")
    return int(any(each.fate in ("kept", "failed") for each in done))


def _scope(reader: LogReader, row: RunRow, below: list[RunRow], turn: int | None) -> UndoScope:
    from retinue.capabilities.audit.ledger_store import Who

    runs = tuple(each.id for each in below)
    if turn is None:
        return UndoScope(Who(row.id, row.agent), 0, runs, 0.0)
    for event in reader.events(row.id):
        if isinstance(event.body, TurnStarted) and event.body.turn == turn:
            return UndoScope(Who(row.id, row.agent), turn, runs, event.at)
    raise UsageError(f"Run {row.id} has no turn {turn}.", remedy=f"It has {row.turns}. See: retinue runs effects")


def _explain_worktrees(folder: Path, done: list[UndoneFile]) -> list[UndoneFile]:
    """Say of files that were kept because Retinue has removed their worktree where the work is."""
    worktrees = (folder / "worktrees").resolve()
    explained = []
    for each in done:
        path = Path(each.path)
        if each.fate == "kept" and path.is_relative_to(worktrees):
            run_id = path.relative_to(worktrees).parts[0]
            if not (worktrees / run_id).exists():
                each = replace(each, detail=f"Retinue removed its worktree{_place_of_work(folder, run_id)}")
        explained.append(each)
    return explained


def _place_of_work(folder: Path, run_id: str) -> str:
    from retinue.capabilities.worktree.integrate import BranchQueue

    with LogReader.open(folder) as reader:
        outcome = reader.outcome(run_id)
    if outcome is None or outcome.branch is None:
        return ""
    entry = BranchQueue(folder).entries.get(outcome.branch)
    if entry is None or entry.commit is None:
        return f"; the work is on branch {outcome.branch}"
    return f"; the work was merged into {entry.onto}: revert {entry.commit[:7]} there"


def _record(folder: Path, row: RunRow, done: list[UndoneFile], args: argparse.Namespace) -> None:
    from retinue.capabilities.audit.attach import undone_event
    from retinue.guard.redact import Redactor
    from retinue.log.commands import annotate

    event = undone_event(done, by="person", turn=args.turn, forced=args.force)
    annotate(folder, row.id, event, Redactor(process_environment()))


def _report_undo(row: RunRow, done: list[UndoneFile], args: argparse.Namespace) -> None:
    if args.json:
        document = {"run": row.id, "turn": args.turn, "dryRun": args.dry_run, "forced": args.force, "files": done}
        write_values(document)
        return
    for each in done:
        path = in_line(undo_path(each.path, row.cwd))
        print(f"{_WORDS[each.fate]:<10} {path}{optional('  ({})', each.detail)}")
    if not done:
        say("Nothing to undo: the record has no file that this run changed.")
    elif args.dry_run:
        say("Nothing was changed (--dry-run).")
    if any(each.fate == "kept" for each in done) and not args.force:
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
    from retinue.capabilities.audit.retention import drop_checkpoints
    from retinue.capabilities.audit.shadow import CheckpointError
    from retinue.capabilities.worktree.home import load_records
    from retinue.runs.retention import DAY, find_expired, prune_log

    state, before = project(args), time.time() - args.older_than * DAY
    size = _size(state / "checkpoints")
    with LogReader.open(state) as reader:
        open_runs = {record.run for record in load_records(state)}
        rows = find_expired(reader.list_runs(), open_runs, before)
        files = []
        for row in rows:
            for path in (state / "outputs" / row.id, state / "transcripts" / f"{row.id}.jsonl"):
                if path.exists():
                    files.append(path)
        taken = sum(map(_size, files))
        try:
            undoable = drop_checkpoints(
                reader, state, before, open_runs=open_runs, seconds=_SECONDS, dry_run=args.dry_run
            )
        except (CheckpointError, OSError) as error:
            raise StateError(f"The checkpoints could not be removed: {error}", remedy="Try again.") from error
    if not args.dry_run:
        for path in files:
            _remove(path)
    # Git packs the checkpoints: only the size of the folder says what was freed.
    taken += max(size - _size(state / "checkpoints"), 0)
    pruned = prune_log(state, before, open_runs, dry_run=args.dry_run) if args.events else None
    _report_prune(args, len(rows), len(undoable), len(files), taken, pruned)
    return 0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _report_prune(
    args: argparse.Namespace, runs: int, undoable: int, files: int, taken: int, pruned: PrunedEvents | None
) -> None:
    if args.json:
        said = {"runs": runs, "checkpointsOf": undoable, "files": files, "bytes": taken, "dryRun": args.dry_run}
        if pruned is not None:
            said |= {"eventsOf": pruned.runs, "events": pruned.events, "logBytes": pruned.bytes, "logBusy": pruned.busy}
        print(json.dumps(said))
        return
    if not undoable and not files and (pruned is None or not pruned.runs):
        print(f"Nothing to remove: {runs} runs are older than {args.older_than} days.")
        return
    verb = "would be removed" if args.dry_run else "removed"
    print(f"{verb}: checkpoints of {undoable} runs, {files} outputs and transcripts ({taken / 2**20:.1f} MB)")
    if pruned is not None and pruned.runs:
        _report_events(pruned, verb, dry_run=args.dry_run)


def _report_events(pruned: PrunedEvents, verb: str, *, dry_run: bool) -> None:
    if dry_run:
        print(f"{verb}: the events of {pruned.runs} runs")
        return
    print(f"{verb}: {pruned.events} events of {pruned.runs} runs; the log is {pruned.bytes / 2**20:.1f} MB smaller")
    if pruned.busy:
        say("The disk did not get all space back: another process uses the log, or a server keeps it. New runs use it.")


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)
