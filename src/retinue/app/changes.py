"""The effects of runs and undoing them: effects, changed files, undo, and pruning of old runs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from retinue.app.feed import Feed
from retinue.app.text import local_time
from retinue.capabilities.audit.ledger import ChangeAuthor
from retinue.capabilities.audit.report import CallEffect as CallEffect
from retinue.capabilities.audit.report import RunEffects as RunEffects
from retinue.capabilities.audit.report import WriteStatus, WrittenFile, effects_of
from retinue.capabilities.audit.retention import drop_checkpoints
from retinue.capabilities.audit.shadow import CheckpointError
from retinue.capabilities.audit.undo import FileDiff, Undo, UndoneFile, UndoScope, undone_event
from retinue.capabilities.worktree.integrate import BranchQueue
from retinue.capabilities.worktree.record import load_records
from retinue.core.delegation import LIVE
from retinue.core.events import TurnStarted
from retinue.core.run_state import RunState
from retinue.errors import StateError, UsageError
from retinue.guard.redact import Redactor
from retinue.log.commands import annotate
from retinue.log.query import LogReader
from retinue.models.keys import environment
from retinue.runs.cleanup import DAY_SECONDS, find_expired, prune_log

_PRUNE_SECONDS = 3600.0
_DATE_FORMAT = "%Y-%m-%d"


class EffectList(Struct, frozen=True):
    """The recorded effects of runs, call by call: files, commands with exit codes, hosts, denials."""

    runs: list[RunEffects]


class DiffList(Struct, frozen=True):
    """The files that a run has changed. If it worked in a worktree, `branch` contains its commits."""

    run_id: str
    branch: str | None
    files: list[FileDiff]


class UndoReport(Struct, frozen=True, kw_only=True, rename={"dry_run": "dryRun"}):
    """The result of an undo, file by file. Changes before `forgotten` cannot be undone, because their checkpoints were
    removed."""

    run: str
    turn: int | None
    dry_run: bool
    forced: bool
    files: list[UndoneFile]
    forgotten: float | UnsetType = UNSET

    @property
    def incomplete(self) -> bool:
        return any(file.fate in ("kept", "failed") for file in self.files)


class PruneReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The data of old runs that was removed. The last four fields are present only if events were removed."""

    runs: int
    checkpoints_of: int
    files: int
    bytes: int
    dry_run: bool
    events_of: int | UnsetType = UNSET
    events: int | UnsetType = UNSET
    log_bytes: int | UnsetType = UNSET
    log_busy: bool | UnsetType = UNSET


# Effects


def run_effects(reader: LogReader, folder: Path, row: RunState) -> RunEffects:
    """Return the recorded effects of one run. `folder` is the state folder that contains its log."""
    meanwhile = _meanwhile(folder, row.id)
    return effects_of(reader.events(row.id), row.id, row.agent, live=row.state in LIVE, meanwhile=meanwhile)


def _meanwhile(folder: Path, run_id: str) -> dict[str, tuple[WrittenFile, ...]]:
    """Return the files changed by calls that were cut off or cancelled, from the ledger."""
    if not has_ledger(folder):
        return {}
    with closing(Undo(folder)) as undo:
        changes = undo.changed([run_id])
    files: dict[str, tuple[WrittenFile, ...]] = {}
    for change in changes:
        states = [state for state in (change.before, change.after) if state is not None]
        if change.kind == "undo" or any(state.is_folder for state in states):
            continue
        status: WriteStatus = "changed"
        if change.after is None:
            status = "deleted"
        elif change.before is None:
            status = "created"
        file = WrittenFile(change.path, status, None, change.after_hash)
        files[change.call_id] = (*files.get(change.call_id, ()), file)
    return files


def has_ledger(folder: Path) -> bool:
    """Return whether any file of the project was changed, without creating a ledger."""
    return (folder / "checkpoints" / "ledger.db").is_file()


def read_effects(folder: Path, row: RunState, *, tree: bool) -> tuple[EffectList, list[RunState], list[str]]:
    """Return the effects of a run, or with `tree` also of the runs below it; then these runs, and the ids of those
    whose events were removed and whose effects are therefore incomplete."""
    with LogReader.open(folder) as reader:
        rows = reader.tree(row) if tree else [row]
        pruned = [run.id for run in rows if any(reader.ordered(run.id, ("run.pruned",)))]
        return EffectList([run_effects(reader, folder, run) for run in rows]), rows, pruned


async def list_effects(feed: Feed, row: RunState, *, tree: bool) -> EffectList:
    """Return the recorded effects of a run, or with `tree` also of the runs below it."""

    def read(reader: LogReader) -> EffectList:
        rows = reader.tree(row) if tree else [row]
        return EffectList([run_effects(reader, feed.folder, run) for run in rows])

    return await feed.read(read)


async def list_changes(feed: Feed, row: RunState, *, tree: bool) -> DiffList:
    """Return the files that a run has changed, with secrets redacted."""

    def read(reader: LogReader) -> DiffList:
        rows = reader.tree(row) if tree else [row]
        outcome = reader.outcome(row.id)
        files: list[FileDiff] = []
        if has_ledger(feed.folder):
            with closing(Undo(feed.folder)) as undo:
                files = undo.diffs([run.id for run in rows])
        return DiffList(
            row.id,
            outcome.branch if outcome is not None else None,
            [replace(file, diff=feed.redact(file.diff)) for file in files],
        )

    return await feed.read(read)


# Undo


def undo_run(
    folder: Path,
    row: RunState,
    *,
    turn: int | None = None,
    tree: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> UndoReport:
    """Restore the files that a run has changed, from `turn` on; with `tree` also those of the runs below it. Without
    `force`, files that others have changed since are kept. Raise StateError for a running run and for one whose
    checkpoints are gone, UsageError for a turn that does not exist."""
    if turn is not None and turn < 1:
        raise UsageError("Turns count from 1.", remedy="See: retinue runs effects ID")
    with LogReader.open(folder) as reader:
        rows = reader.tree(row) if tree else [row]
        for run in rows:
            if run.state in LIVE:
                raise StateError(
                    f"Run {run.id} ({run.agent}) is still running.",
                    remedy=f"Stop it first: retinue runs stop {row.id[:8]}{' --tree' if tree else ''}",
                )
        scope = _scope(reader, row, rows[1:], turn)
    files: list[UndoneFile] = []
    forgotten = None
    if has_ledger(folder):
        with closing(Undo(folder)) as undo:
            files = undo.run(scope, force=force, dry_run=dry_run, moved_to=_RemovedWorktrees(folder).explain)
            forgotten = undo.forgotten(scope.runs)
    if forgotten is not None and not files:
        removed = local_time(forgotten, _DATE_FORMAT)
        raise StateError(
            f"Run {row.id} cannot be undone any more: its checkpoints were removed on {removed}.",
            remedy=f"checkpoints.keepDays sets how long they are kept. Its changes: retinue runs effects {row.id[:8]}",
        )
    if files and not dry_run:
        _record(folder, row, files, turn, force)
    gone: float | UnsetType = UNSET if forgotten is None else forgotten
    return UndoReport(run=row.id, turn=turn, dry_run=dry_run, forced=force, files=files, forgotten=gone)


def _scope(reader: LogReader, row: RunState, below: list[RunState], turn: int | None) -> UndoScope:
    runs = tuple(run.id for run in below)
    if turn is None:
        return UndoScope(ChangeAuthor(row.id, row.agent), 0, runs, 0.0)
    for event in reader.events(row.id):
        if isinstance(event.body, TurnStarted) and event.body.turn == turn:
            return UndoScope(ChangeAuthor(row.id, row.agent), turn, runs, event.at)
    raise UsageError(f"Run {row.id} has no turn {turn}.", remedy=f"It has {row.turns}. See: retinue runs effects")


class _RemovedWorktrees:
    """The worktrees that Retinue had removed when an undo began. Their files must not be made again: nothing would use
    them, and the work is on a branch or merged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._worktrees = (folder / "worktrees").resolve()
        self._explanations: dict[str, str] = {}

    def explain(self, path: str) -> str:
        """Return where the work of a file in a removed worktree is; "" for any other file."""
        if not Path(path).is_relative_to(self._worktrees):
            return ""
        run_id = Path(path).relative_to(self._worktrees).parts[0]
        if run_id not in self._explanations:
            removed = not (self._worktrees / run_id).exists()
            work = f"Retinue removed its worktree{_place_of_work(self._folder, run_id)}" if removed else ""
            self._explanations[run_id] = work
        return self._explanations[run_id]


def _place_of_work(folder: Path, run_id: str) -> str:
    with LogReader.open(folder) as reader:
        outcome = reader.outcome(run_id)
    if outcome is None or outcome.branch is None:
        return ""
    entry = BranchQueue(folder).entries.get(outcome.branch)
    if entry is None or entry.commit is None:
        return f"; the work is on branch {outcome.branch}"
    return f"; the work was merged into {entry.onto}: revert {entry.commit[:7]} there"


def _record(folder: Path, row: RunState, files: list[UndoneFile], turn: int | None, force: bool) -> None:
    event = undone_event(files, by="person", turn=turn, forced=force)
    annotate(folder, row.id, event, Redactor(environment()))


# Old runs


def prune_runs(state: Path, days: int, *, events: bool = False, dry_run: bool = False) -> PruneReport:
    """Remove the data of run trees without activity for `days`: checkpoints, long tool outputs, transcript files, and
    with `events` the events. Runs with a worktree are kept."""
    before, checkpoints = time.time() - days * DAY_SECONDS, state / "checkpoints"
    size = _size(checkpoints)
    open_runs = {record.run for record in load_records(state)}
    with LogReader.open(state) as reader:
        rows = find_expired(reader.list_runs(), open_runs, before)
        try:
            undoable = drop_checkpoints(
                reader, state, before, open_runs=open_runs, seconds=_PRUNE_SECONDS, dry_run=dry_run
            )
        except (CheckpointError, OSError) as error:
            raise StateError(f"The checkpoints could not be removed: {error}", remedy="Try again.") from error
    files = list(_leftovers(state, rows))
    size_of_files = sum(map(_size, files))
    if not dry_run:
        for path in files:
            _remove(path)
    # Git packs the checkpoints, so the freed space follows from the folder's size.
    report = PruneReport(
        runs=len(rows),
        checkpoints_of=len(undoable),
        files=len(files),
        bytes=size_of_files + max(size - _size(checkpoints), 0),
        dry_run=dry_run,
    )
    if not events:
        return report
    pruned = prune_log(state, before, open_runs, dry_run=dry_run)
    return replace(report, events_of=pruned.runs, events=pruned.events, log_bytes=pruned.bytes, log_busy=pruned.busy)


def _leftovers(state: Path, rows: Iterable[RunState]) -> Iterator[Path]:
    for row in rows:
        for path in (state / "outputs" / row.id, state / "transcripts" / f"{row.id}.jsonl"):
            if path.exists():
                yield path


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)
