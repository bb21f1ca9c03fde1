"""How long checkpoints are kept. Those of old runs are dropped, and their space is given back.

An undo needs three things: rows of the ledger, refs of the shadow repository that name the checkpoints before commands,
and contents without a ref, which `edit` and `write` have replaced. `drop` removes the first two; `collect` lets git
remove every object that nothing needs any more. Before that, everything that is still needed gets a name, so that git
knows of it. Objects that were stored or asked for within the last day stay in any case: a run that starts meanwhile
loses nothing.

When a process that made checkpoints ends, at most once a day, it drops those of trees of runs in which nothing has
happened for `checkpoints.keepDays`. A tree goes as a whole, and never while one of its runs is at work or has a
worktree that is not saved yet (`runs/cleanup.py`).

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
from retinue.capabilities.audit.shadow import CheckpointError, CheckpointLimits, RootSnapshot, Shadow
from retinue.core.delegation import LIVE
from retinue.core.programs import locked_file
from retinue.errors import RetinueError
from retinue.runs.cleanup import DAY, find_expired, is_due_today, open_runs_of
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    from retinue.log.query import LogReader
    from retinue.runs.project import Project

GRACE_SECONDS = 24 * 3600.0
MAX_TIDY_SECONDS = 20.0
"""The longest that the end of a process may be held up by it."""
_KEPT = "refs/retinue/kept"
_DUE = "uncollected"
_GC = (
    *("-c", "core.fsync=committed", "-c", "gc.packRefs=false", "-c", "gc.cruftPacks=false", "-c", "pack.threads=1"),
    *("-c", "gc.reflogExpire=never", "-c", "gc.worktreePruneExpire=never", "gc", "--quiet", "--force"),
)
_LOCKS = (
    *("gc.pid.lock", "objects/info/commit-graph.lock"),
    *("objects/info/commit-graphs/commit-graph-chain.lock", "objects/pack/multi-pack-index.lock"),
)
"""Locks of a collecting git. One that was killed leaves them, and every later one would fail."""


def drop(shadow: Shadow, store: LedgerStore, run_ids: Iterable[str]) -> None:
    """Forget how to undo these runs. If this is interrupted, the next call continues it."""
    ids = list(run_ids)
    if not ids:
        return
    (shadow.folder / _DUE).touch()
    for run_id in ids:
        shutil.rmtree(shadow.directory / "refs" / "retinue" / run_id, ignore_errors=True)
        (shadow.folder / "alive" / run_id).unlink(missing_ok=True)
    store.forget(ids)


def is_due(folder: Path) -> bool:
    """Return whether anything was dropped whose space was not given back yet."""
    return (folder / _DUE).exists()


def collect(shadow: Shadow, store: LedgerStore, grace: float = GRACE_SECONDS) -> None:
    """Give the space back. Only while no run of the project is at work, by one process at a time. Raise CheckpointError
    when git cannot, or takes too long: then everything is as before, and it is still due."""
    if (shadow.directory / "HEAD").is_file():
        _tidy(shadow, grace)
        _name_what_is_needed(shadow, store)
        shadow.git([*_GC, f"--prune={int(time.time() - grace)}"])
    store.shrink()
    (shadow.folder / _DUE).unlink(missing_ok=True)


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Hold the lock of retention. Yield False when another process has it."""
    with locked_file(private_folder(folder) / "retention.lock", 0) as descriptor:
        yield descriptor is not None


def _tidy(shadow: Shadow, grace: float) -> None:
    """Remove what only makes the next checkpoint faster and nobody has used for a while, and what
    processes that were killed have left."""
    for lock in _LOCKS:
        (shadow.directory / lock).unlink(missing_ok=True)
    before = time.time() - grace
    for path in [*shadow.folder.glob("making-*.git"), *(shadow.folder / "index").glob("*")]:
        if path.stat().st_mtime >= before:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _name_what_is_needed(shadow: Shadow, store: LedgerStore) -> None:
    """Put all contents, checkpoints and indexes that no ref has into one tree under one ref, so that git keeps them."""
    trees = {snapshot.tree for window in store.open_windows() for snapshot in window.snapshots}
    for index in (shadow.folder / "index").glob("*"):
        try:
            trees.add(shadow.git(["write-tree"], index=index).decode().strip())
        except CheckpointError:
            # The index was cut off while it was written; the next checkpoint starts anew.
            index.unlink(missing_ok=True)
    asked = "".join(f"{oid}\n" for oid in [*store.contents(), *sorted(trees)]).encode()
    lines = shadow.git(["cat-file", "--batch-check=%(objecttype) %(objectname)"], given=asked).decode().splitlines()
    modes = {"blob": "100644", "tree": "040000"}
    listed = ""
    for line in sorted(set(lines)):
        if not line.endswith(" missing"):
            kind, oid = line.split()
            listed += f"{modes[kind]} {kind} {oid}\t{oid}\n"
    tree = shadow.git(["mktree"], given=listed.encode()).decode().strip()
    shadow.commit(_KEPT, RootSnapshot("", tree), "what no checkpoint has and undo may need", time.time())


async def tidy(project: Project) -> None:
    """Drop old checkpoints at the end of a process that made some, at most once a day. Never fails."""
    days = project.settings.settings.checkpoints_keep_days
    mark = project.state / "checkpoints" / "looked"
    with suppress(CheckpointError, RetinueError, OSError):
        if days is None or not is_due_today(mark):
            return
        mark.touch()
        before, open_runs = time.time() - days * DAY, open_runs_of(project)
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
    """Remove the checkpoints of expired runs, and of runs that the log does not know. Return their
    ids. The space is given back when no run of the project is at work. Raise CheckpointError or
    OSError with the reason why it could not."""
    folder = state / "checkpoints"
    if not (folder / "ledger.db").is_file():
        return []
    try:
        with closing(LedgerStore(folder)) as store, alone(folder) as mine:
            rows = reader.list_runs() if mine else []
            old, logged = {row.id for row in find_expired(rows, open_runs, before)}, {row.id for row in rows}
            gone = []
            for run_id, at in store.traces().items() if mine else ():
                if run_id in old or (run_id not in logged and at < before):
                    gone.append(run_id)
            if mine and not dry_run:
                shadow = Shadow(folder, CheckpointLimits(seconds=seconds))
                drop(shadow, store, gone)
                if is_due(folder) and not any(row.state in LIVE for row in reader.list_runs()):
                    collect(shadow, store)
            return gone
    except sqlite3.Error as error:
        raise CheckpointError(str(error)) from error
