"""Worktrees that nobody works in any more: what is in them is saved, and then they go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from retinue.domain.lean import dataclass
from retinue.workspace.worktree_record import Record, place, records
from retinue.workspace.worktree_save import Saved, finish

_SUFFIXES = (".git", ".aside", ".json", ".lock", ".index", ".new")


@dataclass(frozen=True, slots=True)
class Found:
    """A worktree and whether its run still has it."""

    record: Record
    busy: bool


def found(state: Path, live: Collection[str] = ()) -> list[Found]:
    """Every worktree of a project; `live` are the runs that the log says are at work. Those made
    from another come before it, so that they can be brought home into it."""
    every = records(state)
    depth = {record.run: sum(_within(record, other) for other in every) for record in every}
    ordered = sorted(every, key=lambda record: -depth[record.run])
    return [Found(record, record.run in live or record.busy()) for record in ordered]


def strangers(state: Path) -> list[Path]:
    """Folders among the worktrees of which nothing is written down: shown, never touched."""
    known = {record.run for record in records(state)}
    try:
        entries = sorted(place(state).iterdir())
    except OSError:
        return []
    return [path for path in entries if path.suffix not in _SUFFIXES and path.is_dir() and path.name not in known]


def sweep(
    state: Path,
    environment: Mapping[str, str],
    live: Callable[[], Collection[str]],
    tell: Callable[[Record, Saved | None], None],
) -> None:
    """Finishes every worktree that nobody has. `tell` hears of each at once, so that an interrupted
    sweep has said what it did; None means that another process was quicker."""
    for each in found(state, live()):
        if not each.busy:
            tell(each.record, finish(state, each.record.run, environment, wait=False))


def _within(record: Record, other: Record) -> bool:
    return record.run != other.run and other.path in (Path(record.repository), *Path(record.repository).parents)
