"""What is written down about a worktree beside it, so that any later process can finish it.

<state>/worktrees/<run>        the checkout the agent works in
<state>/worktrees/<run>.git    its repository: own refs, config and new objects
<state>/worktrees/<run>.json   this record
<state>/worktrees/<run>.lock   held while one process makes, saves or removes it
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from retinue.core.codec import from_data, to_data
from retinue.core.lean import dataclass
from retinue.log.owner import Owner, this_process
from retinue.settings.places import private_folder

Phase = Literal["making", "open", "kept", "removing"]
"""making: not usable yet. open: a run works in it. kept: the run is over and something stays.
removing: everything in it is reachable elsewhere, and it is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`repository` is the checkout it was made from, `common` that one's .git folder; `base` the
    commit it started at; `below` the folder in it that the run works in."""

    run: str
    folder: str
    repository: str
    common: str
    base: str
    below: str = ""
    agent: str = ""
    description: str = ""
    phase: Phase = "making"
    branch: str | None = None
    tip: str | None = None
    """Where `branch` was when it was last saved: only from there it is ever moved on."""
    config: str = ""
    """The settings of its repository: what was in effect, and consented to, when it was made."""
    included: Mapping[str, list[int]] = field(default_factory=dict)
    """Ignored files that were copied in: size and time."""
    reason: str = ""
    """Why it was kept."""
    owner: Owner | None = None
    at: float = 0.0

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def git(self) -> Path:
        return self.path.with_name(f"{self.run}.git")

    @property
    def file(self) -> Path:
        return self.path.with_name(f"{self.run}.json")

    @property
    def work(self) -> Path:
        """The working directory of its run."""
        return self.path / self.below if self.below else self.path

    def busy(self) -> bool:
        """Whether the process that has it still lives."""
        return self.owner is not None and self.owner.alive(this_process())

    def elsewhere(self) -> bool:
        """Whether that process lives and is another one than this."""
        if self.owner is None or not self.busy():
            return False
        here = this_process()
        return (self.owner.pid, self.owner.started, self.owner.space) != (here.pid, here.started, here.space)


def store(record: Record) -> Record:
    """Written whole or not at all, and on the disk before anything is done because of it."""
    new = record.file.with_suffix(".json.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(to_data(record), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(record.file)
    return record


def load(file: Path) -> Record | None:
    """The record in `file`; None when it holds none. The folder is where the file is now."""
    try:
        data: Any = json.loads(file.read_text("utf-8"))
        record = from_data(Record, data)
    except (OSError, ValueError, TypeError):
        return None
    return replace(record, folder=str(file.with_name(record.run))) if record.run == file.stem else None


def forget(record: Record) -> None:
    record.file.unlink(missing_ok=True)


def place(state: Path) -> Path:
    """Where worktrees of a project are; not created here."""
    return state / "worktrees"


def records(state: Path) -> list[Record]:
    """Every worktree of a project, oldest first. Other files are passed over."""
    try:
        files = sorted(place(state).glob("*.json"))
    except OSError:
        return []
    return sorted((record for file in files if (record := load(file)) is not None), key=lambda record: record.at)


@contextlib.contextmanager
def held(state: Path, run: str, *, wait: bool = True) -> Iterator[bool]:
    """Only one process at a time works on the worktree of `run`. Without `wait` it gives False
    when another one does."""
    path = private_folder(place(state)) / f"{run}.lock"
    try:
        import fcntl
    except ImportError:  # Windows: the record's owner has to do
        yield True
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            if not _is_at(descriptor, path):  # removed by its last holder while this one waited
                continue
            try:
                yield True
            finally:
                if not path.with_suffix(".json").exists():  # nothing left that could be worked on
                    path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
