"""What killed tests leave behind is ended and removed by the next one, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

from retinue.core.events import RunCreated, RunEnded
from retinue.core.outcome import Outcome
from retinue.core.run_state import RunPlace
from retinue.log.store import Log
from retinue.recordings.workspace import clear_leftovers


async def leave(folder: Path, *, ended: bool) -> Path:
    """Leave a folder as a process does that is over: its run has ended, or was cut off."""
    log = Log.open(folder / "state")
    log.append(RunPlace("run-1"), RunCreated("a", "t", {}, "", "m", str(folder)))
    if ended:
        log.append(RunPlace("run-1"), RunEnded(Outcome("completed")))
    await log.close()
    return folder


async def test_only_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = await leave(tmp_path / "retinue-test-dead", ended=False)
    ended = await leave(tmp_path / "retinue-test-ended", ended=True)
    beginning = tmp_path / "retinue-test-beginning"
    beginning.mkdir()
    other = await leave(tmp_path / "somebody-elses", ended=False)
    live = tmp_path / "retinue-test-live"
    log = Log.open(live / "state")
    log.append(RunPlace("run-2"), RunCreated("a", "t", {}, "", "m", str(live)))
    await log.flush()
    link = tmp_path / "retinue-test-link"
    link.symlink_to(other)
    assert clear_leftovers(tmp_path) == [str(dead)]
    assert not dead.exists() and ended.exists() and beginning.exists() and other.exists() and live.exists()
    await log.close()
    os.utime(beginning, (0, 0))
    assert sorted(clear_leftovers(tmp_path)) == [str(beginning), str(live)]
