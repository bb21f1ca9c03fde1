"""Control groups for memory: where they can be made, and what is left of them.

A launcher makes one for its command (`inside/bounds.py`), so that the kernel bounds all of its processes together.
It is made below the group of this process or, in the unified hierarchy, where groups hold either processes or groups,
beside it. Limits of the groups above hold as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from threading import Thread

from msgspec import Struct

_UNIFIED_HIERARCHY = Path("/sys/fs/cgroup")
_MEMORY_HIERARCHY = _UNIFIED_HIERARCHY / "memory"
_GROUP_PREFIX = "retinue-"

GroupWords = tuple[str, str, list[tuple[str, str]], str]
"""Of a group to be made: the folder, the beginning of its name, files with their text, the file that tells of ends."""


class GroupPlace(Struct, frozen=True):
    """A folder in which groups can be made, the group that this process is in, and the files of a group that bound
    its memory and tell whether the kernel ended something in it. `{}` is the number of bytes."""

    folder: Path
    own: Path
    limits: tuple[tuple[str, str], ...]
    events: str

    def group_for(self, scratch: str, most: int) -> GroupWords:
        """Return what the launcher needs for a group of at most so many bytes. `scratch` names the run."""
        return (
            str(self.folder),
            _GROUP_PREFIX + scratch,
            [(file, text.format(most)) for file, text in self.limits],
            self.events,
        )

    def prepare_join(self) -> None:
        """Have the kernel prepare for a process that joins a group. This takes up to 10 ms, which pass while the
        launcher starts."""
        Thread(target=self._join_own, daemon=True).start()

    def _join_own(self) -> None:
        with suppress(OSError):
            (self.own / "cgroup.procs").write_text("0")

    def remove_abandoned(self, is_abandoned: Callable[[str], bool]) -> None:
        """Remove the groups, also of groups beside ours, whose scratch folder is abandoned, by its name. One in which a
        process runs stays."""
        for group in chain(self.folder.glob(f"{_GROUP_PREFIX}*"), self.folder.parent.glob(f"*/{_GROUP_PREFIX}*")):
            if is_abandoned(group.name.removeprefix(_GROUP_PREFIX)):
                with suppress(OSError):
                    group.rmdir()


@cache
def group_place() -> GroupPlace | None:
    """Return where this process can make groups for memory, tried out once; None where it cannot."""
    with suppress(OSError):
        groups = _place_below() or _place_beside()
        if groups is None:
            return None
        trial = groups.folder / f"{_GROUP_PREFIX}trial.{os.getpid()}"
        trial.mkdir()
        try:
            for file, text in groups.limits:
                (trial / file).write_text(text.format(1 << 30))
        finally:
            trial.rmdir()
        return groups
    return None


def _place_below() -> GroupPlace | None:
    own = _own_group(_MEMORY_HIERARCHY, ":memory:")
    if own is None or (own / "memory.use_hierarchy").read_text().strip() != "1":
        return None
    # The second is the sum of memory and swap, which not every kernel counts.
    counted = (own / "memory.memsw.limit_in_bytes").exists()
    swap = ("memory.memsw.limit_in_bytes", "{}") if counted else ("memory.swappiness", "0")
    return GroupPlace(own, own, (("memory.limit_in_bytes", "{}"), swap), "memory.oom_control")


def _place_beside() -> GroupPlace | None:
    own = _own_group(_UNIFIED_HIERARCHY, "0::")
    if own is None:
        return None
    folder = own.parent
    delegated = folder.stat().st_uid == os.geteuid() != 0 and os.access(folder / "cgroup.procs", os.W_OK)
    # A limit of our own group would not hold for a group beside it.
    if not delegated or any((own / name).read_text().strip() != "max" for name in ("memory.max", "memory.high")):
        return None
    if "memory" not in (folder / "cgroup.subtree_control").read_text().split():
        (folder / "cgroup.subtree_control").write_text("+memory")
    swap = [("memory.swap.max", "0")] if (own / "memory.swap.max").exists() else []
    return GroupPlace(folder, own, (("memory.max", "{}"), ("memory.oom.group", "1"), *swap), "memory.events")


def _own_group(top: Path, mark: str) -> Path | None:
    """Return the folder of the group that this process is in; None where it is not in sight."""
    path = next((line.partition(mark)[2] for line in _lines(Path("/proc/self/cgroup")) if mark in line), "")
    # A container may be shown its own group as the top.
    for folder in (top / path.lstrip("/"), top) if path else ():
        with suppress(OSError):
            if str(os.getpid()) in _lines(folder / "cgroup.procs"):
                return folder
    return None


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
