"""Which run, and which project, somebody means."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from retinue.core.delegation import State
from retinue.core.outcome import Outcome
from retinue.core.run_state import RunState
from retinue.errors import UnknownRunError
from retinue.log.query import LogReader
from retinue.log.query import find_run as find_anywhere
from retinue.settings.places import cache_folder as cache_folder
from retinue.settings.places import private_folder as private_folder
from retinue.settings.places import retinue_state as retinue_state
from retinue.settings.places import state_folder as state_folder


def locate_run(name: str, cwd: Path) -> tuple[Path, RunState]:
    """Return a run and the state folder it is in: by its id or the beginning of it, in the project at `cwd` or any
    other, or as `@name` in this one. Raise UnknownRunError."""
    here = state_folder(cwd)
    if not name.startswith("@"):
        return find_anywhere(retinue_state(), name, first=here)

    from retinue.app.snapshot import find_run

    with LogReader.open(here) as reader:
        return here, find_run(reader, name)


def find_main_run(run_id: str, cwd: Path | None) -> tuple[Path, RunState]:
    """Return the run of that whole id that nobody started, and the state folder it is in; the project at `cwd` is
    looked at first. Raise UnknownRunError."""
    folder, row = find_anywhere(retinue_state(), run_id, None if cwd is None else state_folder(cwd))
    if row.id != run_id or row.parent_id is not None:
        raise UnknownRunError(f"There is no conversation '{run_id}'.", remedy="session/list has those there are.")
    return folder, row


def project_of(folder: Path, row: RunState) -> Path:
    """Return the folder of the project in whose log a run is."""
    with LogReader.open(folder) as reader:
        try:
            # The run's own folder may be a worktree, or in another project, and may be gone.
            return Path(reader.run(row.root_id).cwd)
        except UnknownRunError:
            return Path(row.cwd)


def newest_run(
    cwd: Path, *, agent: str | None = None, states: Collection[State], main: bool = False
) -> RunState | None:
    """Return the newest run of the project at `cwd` in one of the states; with `main` only one that nobody started."""
    with LogReader.open(state_folder(cwd)) as reader:
        for row in reader.list_runs(agent=agent, states=states):
            if not main or row.id == row.root_id:
                return row
    return None


def find_outcome(folder: Path, run_id: str) -> tuple[RunState, Outcome | None]:
    """Return a run as it stands, and its outcome if it has one."""
    with LogReader.open(folder) as reader:
        return reader.run(run_id), reader.outcome(run_id)
