"""Cleaning up after dead processes and old runs: commands that still run, and events.

A command belongs to the call that started it. If the process of that call was killed, nobody waits for the command, and
its run is told that the effect is unknown. So the command must not change anything while another process resumes the
run. Commands have their run's id in their environment. Where that cannot be read (systems other than Linux), they are
not ended.

At its end, but at most once a day, a process removes the events of trees of runs in which nothing has happened for
`log.keepDays`. `retinue runs prune --events` does the same on request, and releases the space. A tree is removed as a
whole, and never while one of its runs is at work or has unsaved work.
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


_MAX_KILL_PASSES = 20
"""A process may fork while it is being killed, so the search is repeated until nothing is found."""


def end_leftovers(reader: LogReader) -> tuple[str, ...]:
    """Kill the commands of dead processes of this log. Return a note with the commands of each run."""
    commands: dict[str, dict[str, None]] = {}
    for _ in range(_MAX_KILL_PASSES):
        processes = _find_leftovers(reader)
        for pid, (run_id, command) in processes.items():
            commands.setdefault(run_id, {})[command] = None
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        if not processes:
            break
    return tuple(
        f"ended commands of run {run_id} that were running when its process died: {'; '.join(lines)}"
        for run_id, lines in commands.items()
    )


def find_commands(reader: LogReader) -> dict[str, list[str]]:
    """Return the running commands of dead processes, by the run that started them."""
    commands: dict[str, list[str]] = {}
    for pid, (run_id, command) in sorted(_find_leftovers(reader).items()):
        commands.setdefault(run_id, []).append(f"{command} (process {pid})")
    return commands


def _find_leftovers(reader: LogReader) -> dict[int, tuple[str, str]]:
    """Return run and command line of each such process, by process id. The log is read after the processes, so that
    commands of a run that is resumed in between are left out."""
    processes = processes_by_run()
    over = {run_id for run_id in set().union(*processes.values()) if _is_over(reader, run_id)}
    leftovers: dict[int, tuple[str, str]] = {}
    for pid, runs in processes.items():
        dead = sorted(runs & over)
        if dead:
            leftovers[pid] = (dead[0], describe(pid))
    return leftovers


def _is_over(reader: LogReader, run_id: str) -> bool:
    """Return whether a run of this project is not live; False for runs of other projects."""
    try:
        row = reader.run(run_id)
    except RetinueError:
        return False
    return row.id == run_id and row.state not in LIVE


DAY_SECONDS = 24 * 3600.0


def is_due_today(mark: Path) -> bool:
    """Return whether a daily task is due. The file `mark` was changed when it was done last."""
    return not mark.exists() or time.time() - mark.stat().st_mtime >= DAY_SECONDS


def unsaved_runs(project: Project) -> set[str]:
    """Return the ids of runs with unsaved work."""
    return set(project.part(UnsavedWork).runs())


async def tidy_log(project: Project) -> None:
    """Remove the events of old runs at the end of a process, at most once a day. Never fails."""
    days = project.settings.settings.log_keep_days
    mark = project.state / "pruned"
    if days is None or not is_due_today(mark):
        return
    with suppress(RetinueError, OSError):
        mark.touch()
        unsaved = unsaved_runs(project)
        await asyncio.to_thread(prune_log, project.state, time.time() - days * DAY_SECONDS, unsaved, shrink=False)


def prune_log(
    state: Path, before: float, unsaved: Collection[str], *, shrink: bool = True, dry_run: bool = False
) -> PrunedEvents:
    """Remove the events of trees in which nothing has happened since `before`. Raise StateError."""
    with LogReader.open(state) as reader:
        rows = find_expired(reader.list_runs(), unsaved, before)
        ids = prunable(reader, [row.id for row in rows])
    if dry_run or not ids:
        return PrunedEvents(len(ids), 0)
    return prune_events(state, ids, shrink=shrink)


def find_expired(rows: Iterable[RunState], unsaved: Collection[str], before: float) -> list[RunState]:
    """Return the runs of trees in which nothing has happened since `before`. Trees with a run in `unsaved` are kept."""
    runs = list(rows)
    kept_roots: set[str] = set()
    for run in runs:
        if run.state in LIVE or run.updated_at >= before or run.id in unsaved:
            kept_roots.add(run.root_id)
    return [run for run in runs if run.root_id not in kept_roots]
