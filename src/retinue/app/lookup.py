"""Find the run or the project that a name refers to."""

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
    """Find a run by its id or a prefix of it, in the project at `cwd` or any other, or by `@name` in this project.
    Return its state folder and the run. Raise UnknownRunError."""
    here = state_folder(cwd)
    if not name.startswith("@"):
        return find_anywhere(retinue_state(), name, first=here)

    from retinue.app.snapshot import find_run

    with LogReader.open(here) as reader:
        return here, find_run(reader, name)


def find_main_run(run_id: str, cwd: Path | None) -> tuple[Path, RunState]:
    """Find a main run by its full id. Return its state folder and the run; the project at `cwd` is searched first.
    Raise UnknownRunError."""
    folder, row = find_anywhere(retinue_state(), run_id, None if cwd is None else state_folder(cwd))
    if row.id != run_id or row.parent_id is not None:
        raise UnknownRunError(f"There is no conversation '{run_id}'.", remedy="session/list has those there are.")
    return folder, row


def project_of(folder: Path, row: RunState) -> Path:
    """Return the folder of the project whose log contains a run."""
    with LogReader.open(folder) as reader:
        try:
            # The run's own folder may be a worktree, or in another project, and may be gone.
            return Path(reader.run(row.root_id).cwd)
        except UnknownRunError:
            return Path(row.cwd)


def newest_run(
    cwd: Path, *, agent: str | None = None, states: Collection[State], main: bool = False
) -> RunState | None:
    """Return the newest run of the project at `cwd` in one of the states; with `main` only a main run."""
    with LogReader.open(state_folder(cwd)) as reader:
        for row in reader.list_runs(agent=agent, states=states):
            if not main or row.id == row.root_id:
                return row
    return None


def find_outcome(folder: Path, run_id: str) -> tuple[RunState, Outcome | None]:
    """Return the state of a run, and its outcome if it has ended."""
    with LogReader.open(folder) as reader:
        return reader.run(run_id), reader.outcome(run_id)
