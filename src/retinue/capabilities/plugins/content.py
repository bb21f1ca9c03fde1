"""What consent to a plugin is bound to: every byte of its folder.

Hooks and servers start programs that lie in the folder, and modules import each other, so a digest
of some of its files would be consent to more than anyone has seen. Python's own caches and the
repository of git are left out. The caches are for that reason never used: what we import is compiled
from the text that counts, and programs of a plugin are told to keep theirs elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

MOST_FILES = 5_000
MOST_BYTES = 64 * 1024 * 1024
_CACHES = frozenset({"__pycache__", ".git"})
_SETTLED = 2_100_000_000
"""Nanoseconds after which a change shows in a file's times on every file system."""


class UnboundError(Exception):
    """There is no content that consent could be bound to, for the reason given."""


_known: dict[str, tuple[object, str]] = {}


def content_digest(place: Path) -> str:
    """A digest over names, modes and contents of all files at `place`. Raises UnboundError for
    a folder that is too large, cannot be read, or leads out of itself by a link."""
    try:
        files = list(_files(place))
        signature = tuple((name, *_signature(status)) for name, _, status in files)
        known = _known.get(str(place))
        if known is None or known[0] != signature:
            now = time.time_ns()
            known = (signature, _digest(files))
            if all(status.st_ctime_ns < now - _SETTLED for _, _, status in files):
                _known[str(place)] = known
    except OSError as error:
        raise UnboundError(f"{error.filename or place} cannot be read: {error.strerror or error}") from error
    return known[1]


def _signature(status: os.stat_result) -> tuple[int, ...]:
    """What cannot stay the same when a file changes: the time of the change is nobody's to set."""
    return status.st_mode, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _files(place: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Every file below, in an order that does not depend on the file system."""
    base = place.resolve()
    if not place.is_dir():
        yield place.name, place, place.stat()
        return
    number = size = 0
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(set(folders) - _CACHES)
        here = Path(folder)
        for name in sorted([*names, *(each for each in folders if (here / each).is_symlink())]):
            path = here / name
            if path.is_symlink() and base not in path.resolve().parents:
                raise UnboundError(f"{path.relative_to(place)} is a link that leads out of the plugin")
            status = path.stat()
            if path.is_symlink() and not stat.S_ISREG(status.st_mode):
                continue  # a folder of its own, which is walked where it lies
            if not stat.S_ISREG(status.st_mode):
                raise UnboundError(f"{path.relative_to(place)} is no file")
            number, size = number + 1, size + status.st_size
            if number > MOST_FILES or size > MOST_BYTES:
                raise UnboundError(f"it has more than {MOST_FILES} files or {MOST_BYTES // 1024 // 1024} MiB")
            yield str(path.relative_to(place)), path, status


def _digest(files: list[tuple[str, Path, os.stat_result]]) -> str:
    whole = hashlib.sha256()
    for name, path, status in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        runs = "x" if status.st_mode & stat.S_IXUSR else "-"
        whole.update(f"{len(name)} {name} {runs} {content}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()
