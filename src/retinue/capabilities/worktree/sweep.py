"""Worktrees that nobody works in any more: what is in them is saved, and then they are removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.capabilities.worktree.home import WorktreeRecord, held, place, records
from retinue.capabilities.worktree.remove import BESIDE, remove_folder
from retinue.capabilities.worktree.save import SavedWork, finish

_LITTER = (*BESIDE, ".lock")


class WorktreeState(Struct, frozen=True):
    """A worktree and whether its run still has it."""

    record: WorktreeRecord
    busy: bool


def found(state: Path, live: Collection[str] = ()) -> list[WorktreeState]:
    """Return every worktree of a project; `live` are the runs that the log says are at work. Those made
    from another come before it, so that they can be brought home into it."""
    every = records(state)
    depth = {record.run: sum(_within(record, other) for other in every) for record in every}
    ordered = sorted(every, key=lambda record: -depth[record.run])
    return [WorktreeState(record, record.run in live or record.busy()) for record in ordered]


def strangers(state: Path) -> list[Path]:
    """Return what lies among the worktrees and no readable record names: shown, never touched."""
    return [path for _, ending, path in _unrecorded(state) if ending not in _LITTER]


def sweep(
    state: Path,
    environment: Mapping[str, str],
    live: Callable[[], Collection[str]],
    tell: Callable[[WorktreeRecord, SavedWork | None], None],
) -> None:
    """Finish every worktree that nobody has. `tell` hears of each at once, so that an interrupted
    sweep has said what it did; None means that another process was quicker. `live` is asked again
    before each: a sweep takes time, in which runs are taken up."""
    for each in found(state, live()):
        if not each.busy and each.record.run not in live():
            tell(each.record, finish(state, each.record.run, environment, leftover=True))
    _tidy(state)


def _tidy(state: Path) -> None:
    """Remove what processes that died before they had written anything down left beside nothing."""
    every = list(_unrecorded(state))
    kept = {run for run, ending, _ in every if ending not in _LITTER}
    for run in {run for run, _, _ in every} - kept:
        with held(state, run, wait=False) as mine:  # which also removes the lock
            if not mine or (place(state) / f"{run}.json").exists():
                continue
            for ending in BESIDE:
                remove_folder(place(state) / f"{run}{ending}")


def _unrecorded(state: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield what belongs to no record: the run it is named after, the rest of its name, its path."""
    try:
        entries = sorted(place(state).iterdir())
    except OSError:
        return
    known = {record.run for record in records(state)}
    for path in entries:
        run, _, rest = path.name.partition(".")
        ending = f".{rest}" if rest else ""
        if run not in known:
            yield run, ending, path


def _within(record: WorktreeRecord, other: WorktreeRecord) -> bool:
    return record.run != other.run and other.path in (Path(record.repository), *Path(record.repository).parents)
