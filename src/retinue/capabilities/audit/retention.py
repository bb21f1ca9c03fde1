"""The retention of checkpoints: those of old runs are dropped, and their disk space is released.

An undo needs rows of the ledger, refs of the shadow repository for the checkpoints before commands, and contents
without a ref, which `edit` and `write` have replaced. `drop` removes rows and refs; `collect` lets git remove every
object that is no longer needed. Before that, `collect` puts all needed objects under a ref. Objects that were stored or
used within the last day stay in any case, so a run that starts meanwhile loses nothing.

When a process that made checkpoints ends, at most once a day, it drops those of trees of runs without activity for
`checkpoints.keepDays`. A tree is dropped as a whole, and never while one of its runs is live or has an unsaved worktree
(`runs/cleanup.py`).

All functions but `tidy` block: call them in a thread.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.capabilities.audit.ledger import LedgerStore
from retinue.capabilities.audit.shadow import CheckpointError, RootSnapshot, Shadow
from retinue.core.delegation import LIVE
from retinue.core.programs import locked_file
from retinue.errors import RetinueError
from retinue.runs.cleanup import DAY_SECONDS, find_expired, is_due_today, unsaved_runs
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    from retinue.log.query import LogReader
    from retinue.runs.project import Project

GRACE_SECONDS = 24 * 3600.0
MAX_TIDY_SECONDS = 20.0
"""The limit for the delay at the end of a process."""
_NEEDED_REF = "refs/retinue/kept"
_DUE_FILE = "uncollected"
_GC_ARGUMENTS = (
    *("-c", "core.fsync=committed", "-c", "gc.packRefs=false", "-c", "gc.cruftPacks=false", "-c", "pack.threads=1"),
    *("-c", "gc.reflogExpire=never", "-c", "gc.worktreePruneExpire=never", "gc", "--quiet", "--force"),
)
_GC_LOCKS = (
    *("gc.pid.lock", "objects/info/commit-graph.lock"),
    *("objects/info/commit-graphs/commit-graph-chain.lock", "objects/pack/multi-pack-index.lock"),
)
"""Locks of git's garbage collection. If it was killed they remain, and every later one would fail."""


def drop(shadow: Shadow, store: LedgerStore, run_ids: Iterable[str]) -> None:
    """Remove the checkpoints of these runs. After an interruption the next call continues."""
    ids = list(run_ids)
    if not ids:
        return
    (shadow.folder / _DUE_FILE).touch()
    for run_id in ids:
        shutil.rmtree(shadow.directory / "refs" / "retinue" / run_id, ignore_errors=True)
        (shadow.folder / "alive" / run_id).unlink(missing_ok=True)
    store.forget(ids)


def is_due(folder: Path) -> bool:
    """Return whether the space of dropped checkpoints was not released yet."""
    return (folder / _DUE_FILE).exists()


def collect(shadow: Shadow, store: LedgerStore, grace: float = GRACE_SECONDS) -> None:
    """Release the space. Call it only while no run of the project is live, in one process at a time. Raise
    CheckpointError if git fails or takes too long; then nothing has changed, and it is still due."""
    if (shadow.directory / "HEAD").is_file():
        _tidy(shadow, grace)
        _reference_needed_objects(shadow, store)
        shadow.git([*_GC_ARGUMENTS, f"--prune={int(time.time() - grace)}"])
    store.shrink()
    (shadow.folder / _DUE_FILE).unlink(missing_ok=True)


@contextmanager
def retention_lock(folder: Path) -> Iterator[bool]:
    """Hold the lock of retention. Yield False if another process has it."""
    with locked_file(private_folder(folder) / "retention.lock", 0) as descriptor:
        yield descriptor is not None


def _tidy(shadow: Shadow, grace: float) -> None:
    """Remove old indexes, which only make the next checkpoint faster, and remains of killed processes."""
    for lock in _GC_LOCKS:
        (shadow.directory / lock).unlink(missing_ok=True)
    before = time.time() - grace
    for path in [*shadow.folder.glob("making-*.git"), *(shadow.folder / "index").glob("*")]:
        if path.stat().st_mtime >= before:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _reference_needed_objects(shadow: Shadow, store: LedgerStore) -> None:
    """Put all needed contents, checkpoints and indexes without a ref into one tree under one ref, so that git keeps
    them."""
    trees = {snapshot.tree for window in store.open_windows() for snapshot in window.snapshots}
    for index in (shadow.folder / "index").glob("*"):
        try:
            trees.add(shadow.git(["write-tree"], index=index).decode().strip())
        except CheckpointError:
            # The index is incomplete; the next checkpoint creates a new one.
            index.unlink(missing_ok=True)
    asked = "".join(f"{oid}\n" for oid in [*store.contents(), *sorted(trees)]).encode()
    lines = shadow.git(["cat-file", "--batch-check=%(objecttype) %(objectname)"], stdin=asked).decode().splitlines()
    modes = {"blob": "100644", "tree": "040000"}
    listed = ""
    for line in sorted(set(lines)):
        if not line.endswith(" missing"):
            kind, oid = line.split()
            listed += f"{modes[kind]} {kind} {oid}\t{oid}\n"
    tree = shadow.git(["mktree"], stdin=listed.encode()).decode().strip()
    shadow.commit(_NEEDED_REF, RootSnapshot("", tree), "contents for undo without a checkpoint", time.time())


async def tidy(project: Project) -> None:
    """Drop old checkpoints at the end of a process that made some, at most once a day. Never fails."""
    days = project.settings.settings.checkpoints_keep_days
    mark = project.state / "checkpoints" / "looked"
    with suppress(CheckpointError, RetinueError, OSError):
        if days is None or not is_due_today(mark):
            return
        mark.touch()
        before, open_runs = time.time() - days * DAY_SECONDS, unsaved_runs(project)
        drop_old = partial(drop_checkpoints, project.log.reader, project.state, before, open_runs=open_runs)
        await asyncio.to_thread(drop_old, seconds=MAX_TIDY_SECONDS)


def drop_checkpoints(
    reader: LogReader,
    state: Path,
    before: float,
    *,
    open_runs: Collection[str],
    seconds: float,
    dry_run: bool = False,
) -> list[str]:
    """Remove the checkpoints of expired runs, and of runs that are not in the log. Return their ids. The space is
    released if no run of the project is live. Raise CheckpointError or OSError."""
    folder = state / "checkpoints"
    if not (folder / "ledger.db").is_file():
        return []
    try:
        with closing(LedgerStore(folder)) as store, retention_lock(folder) as mine:
            rows = reader.list_runs() if mine else []
            old, logged = {row.id for row in find_expired(rows, open_runs, before)}, {row.id for row in rows}
            gone = []
            for run_id, at in store.traces().items() if mine else ():
                if run_id in old or (run_id not in logged and at < before):
                    gone.append(run_id)
            if mine and not dry_run:
                shadow = Shadow(folder, seconds=seconds)
                drop(shadow, store, gone)
                if is_due(folder) and not any(row.state in LIVE for row in reader.list_runs()):
                    collect(shadow, store)
            return gone
    except sqlite3.Error as error:
        raise CheckpointError(str(error)) from error
