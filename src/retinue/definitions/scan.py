"""Listing a folder of agent files: what is there, and a signature by which a change is seen."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from retinue.definitions.discover import MAX_DEPTH, Folder
from retinue.domain.spec import Problem

Signature = tuple[int, int, int, int]
"""Modification and change time in nanoseconds, size, inode."""

Seen = tuple[str, Signature | Problem]
"""A file to read, or a path with the reason why it cannot be read."""


def scan(folder: Folder) -> list[Seen]:
    """Everything in `folder` that could be an agent file, sorted by path. Never raises, never
    opens a file, and ends on loops of links."""
    found: list[Seen] = []
    pending = [(folder.path, 0)]
    visited: set[tuple[int, int]] = set()
    while pending:
        path, depth = pending.pop()
        try:
            status = Path(path).stat()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(path) as entries:
                for entry in entries:
                    if folder.recursive and _is_folder(entry):
                        if depth < MAX_DEPTH and not entry.name.startswith(".") and entry.name != "node_modules":
                            pending.append((entry.path, depth + 1))
                    elif entry.name.lower().endswith(folder.suffixes):
                        found += _file(entry)
        except OSError as error:
            found.append((path, _unlistable(error)))
    found.sort(key=_path)
    return found


def _path(seen: Seen) -> str:
    return seen[0]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _file(entry: os.DirEntry[str]) -> Iterator[Seen]:
    try:
        status = entry.stat()
    except OSError as error:
        yield entry.path, _unreachable(entry, error)
        return
    if stat.S_ISREG(status.st_mode):
        yield entry.path, (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    elif not stat.S_ISDIR(status.st_mode):
        text = "This is a pipe, socket or device, not a file."
        yield entry.path, Problem("not-a-file", "error", text, "Remove it from the agents folder.")


def _unreachable(entry: os.DirEntry[str], error: OSError) -> Problem:
    if entry.is_symlink():
        return Problem("broken-link", "error", "This link leads nowhere.", "Repair or remove it.")
    return Problem("unreadable", "error", f"The file cannot be reached: {error.strerror}.", "Check its permissions.")


def _unlistable(error: OSError) -> Problem:
    return Problem("unreadable", "error", f"The folder cannot be listed: {error.strerror}.", "Check its permissions.")
