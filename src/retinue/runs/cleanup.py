"""What dead processes and old runs leave behind: commands that still work, and events.

A command belongs to the call that started it. When the process of that call was killed, nobody waits for the command
and its run has been told that its effect is unknown: it must not change things beside the process that resumes the run.
Commands carry their run's id in their environment; where that cannot be read (systems other than Linux) they end by
themselves.

When a process ends, at most once a day, it removes the events of trees of runs in which nothing has happened for
`log.keepDays`; `retinue runs prune --events` does the same when told, and gives the space back. A tree goes as a whole,
and never while one of its runs is at work or has work that is not saved yet.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.delegation import LIVE
from retinue.errors import RetinueError
from retinue.log.prune import PrunedEvents, prunable, prune_events
from retinue.log.query import LogReader
from retinue.runs.capability import UnsavedWork
from retinue.tools.processes import describe, processes_by_run

if TYPE_CHECKING:
    from retinue.core.run_state import RunState
    from retinue.runs.project import Project


_PASSES = 20
"""Something may fork while it is being killed: it is looked again until nothing is found."""


def end_leftovers(reader: LogReader) -> tuple[str, ...]:
    """Kill every process of a run in this log that no live process runs. Return a note for each
    such run, with what it had left."""
    left: dict[str, dict[str, None]] = {}
    for _ in range(_PASSES):
        found = _of_dead_runs(reader)
        for pid, (run_id, command) in found.items():
            left.setdefault(run_id, {})[command] = None
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        if not found:
            break
    return tuple(
        f"ended what run {run_id} had left running when its process died: {'; '.join(commands)}"
        for run_id, commands in left.items()
    )


def living_commands(reader: LogReader) -> dict[str, list[str]]:
    """What commands of dead processes still do, by the run that started them. Ends nothing."""
    living: dict[str, list[str]] = {}
    for pid, (run_id, command) in sorted(_of_dead_runs(reader).items()):
        living.setdefault(run_id, []).append(f"{command} (process {pid})")
    return living


def _of_dead_runs(reader: LogReader) -> dict[int, tuple[str, str]]:
    """Process numbers with run and command line. The log is asked after the look at the
    processes: what a run starts that someone takes up in between is not among them."""
    seen = processes_by_run()
    over = {run_id for run_id in set().union(*seen.values()) if _is_over(reader, run_id)}
    found: dict[int, tuple[str, str]] = {}
    for pid, runs in seen.items():
        dead = sorted(runs & over)
        if dead:
            found[pid] = (dead[0], describe(pid))
    return found


def _is_over(reader: LogReader, run_id: str) -> bool:
    """Runs of other projects are none of ours."""
    try:
        row = reader.run(run_id)
    except RetinueError:
        return False
    return row.id == run_id and row.state not in LIVE


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
