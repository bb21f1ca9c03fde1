"""The worktree a run works in, as everything that must keep to it knows it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class Isolation(Struct, frozen=True):
    """The worktree a run works in. `own` is False for one that belongs to a run above it;
    `asked_in` is the folder for which it was asked."""

    run: str
    top: Path
    git: Path
    main: Path
    asked_in: Path
    own: bool = True
    shown: tuple[Path, ...] = ()
    """Repositories of worktrees above it, whose objects its own borrows."""

    @property
    def writable(self) -> tuple[Path, ...]:
        """What programs of the run may change: the worktree and its own repository, nothing else."""
        return (self.top, self.git)
