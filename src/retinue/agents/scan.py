"""Listing a folder of agent files, and reading one of them without blocking on a pipe or device."""

from __future__ import annotations

import os
import time
from operator import itemgetter
from pathlib import Path

from msgspec import Struct, field

from retinue.agents.folders import MAX_DEPTH, Folder
from retinue.core.files import MAX_FILE_BYTES, FileRefusedError, read_with_status
from retinue.core.spec import Problem

Signature = tuple[int, int, int, int]
"""Modification and change time in nanoseconds, size, inode: while they stay, a file stays."""

_FINE = 30_000_000
_COARSE = 2_100_000_000
_SECOND = 1_000_000_000


class Scan(Struct):
    """`files` are sorted by path: each to be read, or with the reason why it cannot be.
    `folders` are what was listed, with the signatures from before; None if even with all of
    them unchanged the next scan could find something else."""

    files: list[tuple[str, Problem | None]] = field(default_factory=list)
    folders: list[tuple[str, Signature]] | None = field(default_factory=list)


def scan(folder: Folder) -> Scan:
    """Return everything in `folder` that could be an agent file. Never raises, never opens a file, and
    ends on loops of links."""
    found = Scan()
    pending = [(folder.path, 0)]
    visited: set[tuple[int, int]] = set()
    while pending:
        path, depth = pending.pop()
        now = time.time_ns()
        try:
            status = Path(path).stat()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            below = _list(path, folder, found)
        except OSError as error:
            reason = f"The folder cannot be listed: {error.strerror}."
            found.files.append((path, Problem("unreadable", "error", reason, "Check its permissions.")))
            found.folders = None
            continue
        signature = signature_of(status)
        if found.folders is not None:
            found.folders.append((path, signature))
        if just_written(signature, now):
            found.folders = None
        if depth < MAX_DEPTH:
            for each in below:
                pending.append((each, depth + 1))
    found.files.sort(key=itemgetter(0))
    return found


def unchanged(signatures: list[tuple[str, Signature]]) -> bool:
    """Return whether each path still has the signature it had."""
    try:
        for path, (modified, changed, size, inode) in signatures:
            status = os.stat(path)  # noqa: PTH116 (a Path costs more than the call itself)
            if (
                status.st_ctime_ns != changed
                or status.st_mtime_ns != modified
                or status.st_size != size
                or status.st_ino != inode
            ):
                return False
    except OSError:
        return False
    return True


def signature_of(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def just_written(signature: Signature, now: int) -> bool:
    """Return whether a change right after `now` could leave the signature as it is."""
    # File systems stamp times coarsely; some only to the second.
    newest = max(signature[0], signature[1])
    return newest > now - (_COARSE if newest % _SECOND == 0 else _FINE)


def _list(path: str, folder: Folder, found: Scan) -> list[str]:
    """Add the files of one folder to `found` and return the folders in it to go on with."""
    below: list[str] = []
    suffixes = folder.suffixes
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            wanted = name.endswith(suffixes) or name.lower().endswith(suffixes)
            try:
                is_file, is_folder = wanted and entry.is_file(), entry.is_dir()
            except OSError:  # a link to itself
                is_file = is_folder = False
            if is_file:
                found.files.append((entry.path, None))
            elif is_folder:
                if folder.recursive and name[0] != "." and name != "node_modules":
                    below.append(entry.path)
            elif wanted or entry.is_symlink():
                # What it is or leads to may change without a trace here.
                found.folders = None
                if wanted:
                    found.files.append((entry.path, _no_file(entry)))
    return below


def _no_file(entry: os.DirEntry[str]) -> Problem:
    if entry.is_symlink():
        return Problem("broken-link", "error", "This link leads nowhere.", "Repair or remove it.")
    text = "This is a pipe, socket or device, not a file."
    return Problem("not-a-file", "error", text, "Remove it from the agents folder.")


def read_bytes(path: str) -> bytes | Problem:
    """Return the content of a regular file, or why not."""
    found = read_signed(path)
    if isinstance(found, Problem):
        return found
    return found[0]


def read_signed(path: str) -> tuple[bytes, Signature] | Problem:
    """Return the content of a regular file with its signature from before it was read."""
    try:
        data, status = read_with_status(path)
    except FileRefusedError as error:
        remedy = "An agent is a prompt: keep it short." if error.reason == "too-large" else "Name a Markdown file."
        return Problem(error.reason, "error", f"The file is not read: {error.strerror}.", remedy)
    except OSError as error:
        text = f"The file cannot be read: {error.strerror}."
        return Problem("unreadable", "error", text, "Check its path and permissions.")
    return data, signature_of(status)


def too_large(size: int) -> Problem:
    text = f"The file has {size:,} bytes; at most {MAX_FILE_BYTES:,} are read."
    return Problem("too-large", "error", text, "An agent is a prompt: keep it short.")
