"""How long what runs leave behind is kept. The log is not part of it: nothing is removed from that.

Checkpoints go by themselves: when a process that made some ends, once a day, those of trees of runs
that have all been still for `checkpoints.keepDays`. A tree goes as a whole, and never one of which
a run is at work or has a worktree that nobody has cleaned yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.states import LIVE

if TYPE_CHECKING:
    from retinue.capabilities.audit.ledger_store import LedgerStore
    from retinue.log.query import Reader
    from retinue.log.rows import RunRow
    from retinue.runs.world import World

DAY = 24 * 3600.0
_AT_THE_END_SECONDS = 20.0
"""The longest that the end of a process may be held up by it."""


async def tidy(world: World) -> None:
    """What the end of a process that made checkpoints does about it. Never fails."""
    days = world.settings.settings.checkpoints_keep_days
    if days is None:
        return
    from retinue.capabilities.audit.shadow import CheckpointError
    from retinue.errors import RetinueError

    with suppress(CheckpointError, RetinueError, OSError):
        await asyncio.to_thread(_daily, world.log.reader, world.state, days)


def expired(rows: Iterable[RunRow], state: Path, before: float) -> list[RunRow]:
    """Runs of trees in which nothing has happened since `before`, and nothing is open."""
    from retinue.capabilities.worktree.record import records

    every = list(rows)
    open_ones = {record.run for record in records(state)}
    fresh = {row.root_id for row in every if row.state in LIVE or row.updated_at >= before or row.id in open_ones}
    return [row for row in every if row.root_id not in fresh]


def drop_checkpoints(reader: Reader, state: Path, before: float, *, seconds: float, dry_run: bool = False) -> list[str]:
    """Removes the checkpoints of expired runs, and of runs that the log does not know; gives their
    ids. The space is given back when no run of the project is at work. Raises CheckpointError or
    OSError with the reason why it could not."""
    import sqlite3

    from retinue.capabilities.audit.ledger_store import LedgerStore
    from retinue.capabilities.audit.retention import alone
    from retinue.capabilities.audit.shadow import CheckpointError

    folder = state / "checkpoints"
    if not (folder / "ledger.db").is_file():
        return []
    try:
        store = LedgerStore(folder)
        try:
            with alone(folder) as mine:
                return _drop(reader, state, store, before, seconds, dry_run) if mine else []
        finally:
            store.close()
    except sqlite3.Error as error:
        raise CheckpointError(str(error)) from error


def _drop(reader: Reader, state: Path, store: LedgerStore, before: float, seconds: float, dry_run: bool) -> list[str]:
    from retinue.capabilities.audit.retention import collect, drop, is_due
    from retinue.capabilities.audit.shadow import Limits, Shadow

    rows = reader.list_runs()
    old, known = {row.id for row in expired(rows, state, before)}, {row.id for row in rows}
    gone = [run for run, at in store.traces().items() if run in old or (run not in known and at < before)]
    if dry_run:
        return gone
    shadow = Shadow(store.folder, Limits(seconds=seconds))
    drop(shadow, store, gone)
    if is_due(store.folder) and not any(row.state in LIVE for row in reader.list_runs()):
        collect(shadow, store)
    return gone


def _daily(reader: Reader, state: Path, days: int) -> None:
    mark = state / "checkpoints" / "looked"
    now = time.time()
    if mark.exists() and now - mark.stat().st_mtime < DAY:
        return
    mark.touch()
    drop_checkpoints(reader, state, now - days * DAY, seconds=_AT_THE_END_SECONDS)
