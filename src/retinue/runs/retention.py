"""How long the log keeps the events of runs.

When a process ends, at most once a day, it removes the events of trees of runs in which nothing has happened for
`log.keepDays`; `retinue runs prune --events` does the same when told, and gives the space back. A tree goes as a whole,
and never while one of its runs is at work or has work that is not saved yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.delegation import LIVE
from retinue.errors import RetinueError
from retinue.log.prune import PrunedEvents, prunable, prune_events
from retinue.log.query import LogReader
from retinue.runs.services import UnsavedWork

if TYPE_CHECKING:
    from retinue.core.run_state import RunState
    from retinue.log.prune import PrunedEvents
    from retinue.runs.project import Project

DAY = 24 * 3600.0


def is_due_today(mark: Path) -> bool:
    """Return whether a daily task whose last time `mark` keeps is to be done."""
    return not mark.exists() or time.time() - mark.stat().st_mtime >= DAY


def open_runs_of(project: Project) -> set[str]:
    """Return the runs whose work is not saved yet."""
    return set(project.part(UnsavedWork).runs())


async def tidy_log(project: Project) -> None:
    """Remove the events of old runs at the end of a process, at most once a day. Never fails."""
    days = project.settings.settings.log_keep_days
    mark = project.state / "pruned"
    if days is None or not is_due_today(mark):
        return
    with suppress(RetinueError, OSError):
        mark.touch()
        open_runs = open_runs_of(project)
        await asyncio.to_thread(prune_log, project.state, time.time() - days * DAY, open_runs, shrink=False)


def prune_log(
    state: Path, before: float, open_runs: Collection[str], *, shrink: bool = True, dry_run: bool = False
) -> PrunedEvents:
    """Remove the events of runs whose trees have been still since `before`. Raise StateError."""
    with LogReader.open(state) as reader:
        rows = find_expired(reader.list_runs(), open_runs, before)
        ids = prunable(reader, [row.id for row in rows])
    if dry_run or not ids:
        return PrunedEvents(len(ids), 0)
    return prune_events(state, ids, shrink=shrink)


def find_expired(rows: Iterable[RunState], open_runs: Collection[str], before: float) -> list[RunState]:
    """Return the runs of trees in which nothing has happened since `before`. `open_runs` are those whose work is
    not saved yet: their trees are kept."""
    every = list(rows)
    fresh: set[str] = set()
    for row in every:
        if row.state in LIVE or row.updated_at >= before or row.id in open_runs:
            fresh.add(row.root_id)
    return [row for row in every if row.root_id not in fresh]
