"""Ending commands of dead processes.

A command belongs to the call that started it. When the process of that call was killed, nobody waits for the command
and its run has been told that its effect is unknown: it must not go on changing things beside the process that resumes
the run. Commands carry their run's id in their environment; where that cannot be read (systems other than Linux) they
end by themselves.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from retinue.core.delegation import LIVE
from retinue.errors import RetinueError
from retinue.tools.proctree import describe, processes_by_run

if TYPE_CHECKING:
    from retinue.log.query import LogReader


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
