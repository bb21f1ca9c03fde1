"""Listing a folder of agent files and reading them; files that did not change are not read again.

A file is read without blocking on a pipe or device. It counts as unchanged while its times, size and inode are the
same. File systems stamp times coarsely, so a file that was written at about the moment it was read is read once more
the next time, and compared: no change is ever missed, however quick.
"""

from __future__ import annotations

import os
import time
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from retinue.agents.folders import MAX_DEPTH, Folder
from retinue.agents.frontmatter import Parsed
from retinue.agents.parse import parse, parse_at_home, unusable
from retinue.core.files import FileRefusedError, read_with_status
from retinue.core.spec import DialectName, Problem, Source

Signature = tuple[int, int, int, int]
"""Modification and change time in nanoseconds, size, inode: while they stay, a file stays."""

_FINE_STAMP_NS = 30_000_000
_COARSE_STAMP_NS = 2_100_000_000
_SECOND_NS = 1_000_000_000


class Scan(Struct):
    """`files` are sorted by path: each to be read, or with the reason why it cannot be.
    `folders` are those that were listed, with the signatures from before; None if even with all of
    them unchanged the next scan could list something else."""

    files: list[tuple[str, Problem | None]] = field(default_factory=list)
    folders: list[tuple[str, Signature]] | None = field(default_factory=list)


def scan(folder: Folder) -> Scan:
    """Return everything in `folder` that could be an agent file. Never raises, never opens a file, and
    ends on loops of links."""
    result = Scan()
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
            subfolders = _list(path, folder, result)
        except OSError as error:
            reason = f"The folder cannot be listed: {error.strerror}."
            result.files.append((path, Problem("unreadable", "error", reason, "Check its permissions.")))
            result.folders = None
            continue
        signature = signature_of(status)
        if just_written(signature, now):
            result.folders = None
        if result.folders is not None:
            result.folders.append((path, signature))
        if depth < MAX_DEPTH:
            pending += [(subfolder, depth + 1) for subfolder in subfolders]
    result.files.sort(key=itemgetter(0))
    return result


def unchanged(signatures: list[tuple[str, Signature]]) -> bool:
    """Return whether each path still has the signature it had."""
    try:
        return all(signature_of(os.stat(path)) == signature for path, signature in signatures)  # noqa: PTH116 (a Path costs more than the call itself)
    except OSError:
        return False


def signature_of(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def just_written(signature: Signature, now: int) -> bool:
    """Return whether a change right after `now` could leave the signature as it is."""
    # File systems stamp times coarsely; some only to the second.
    newest = max(signature[0], signature[1])
    return newest > now - (_COARSE_STAMP_NS if newest % _SECOND_NS == 0 else _FINE_STAMP_NS)


def _list(path: str, folder: Folder, result: Scan) -> list[str]:
    """Add the files of one folder to `result` and return its subfolders to list next."""
    subfolders: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            is_named = name.lower().endswith(folder.suffixes)
            try:
                is_file, is_folder = is_named and entry.is_file(), entry.is_dir()
            except OSError:  # a link to itself
                is_file = is_folder = False
            if is_file:
                result.files.append((entry.path, None))
            elif is_folder:
                if folder.recursive and name[0] != "." and name != "node_modules":
                    subfolders.append(entry.path)
            elif is_named or entry.is_symlink():
                # What it is or leads to may change without a trace here.
                result.folders = None
                if is_named:
                    result.files.append((entry.path, _no_file(entry)))
    return subfolders


def _no_file(entry: os.DirEntry[str]) -> Problem:
    if entry.is_symlink():
        return Problem("broken-link", "error", "This link leads nowhere.", "Repair or remove it.")
    text = "This is a pipe, socket or device, not a file."
    return Problem("not-a-file", "error", text, "Remove it from the agents folder.")


def read_bytes(path: str) -> bytes | Problem:
    """Return the content of a regular file, or why not."""
    content = read_signed(path)
    return content if isinstance(content, Problem) else content[0]


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


def parse_file(path: Path, *, dialect: DialectName | None = None, source: Source = "project") -> Parsed:
    """Return `parse` of the file's content. What cannot be read is an error in the result."""
    name = str(path)
    data = read_bytes(name)
    if isinstance(data, Problem):
        return unusable(name, data, dialect)
    return parse(data, path=name, dialect=dialect, source=source)


MAX_CACHED_FOLDERS = 512


class FolderContents(Struct, frozen=True):
    """All files of one folder, in the order of their paths. The same object is returned for as
    long as nothing in the folder changed."""

    folder: Folder
    files: tuple[Parsed, ...]


class _CachedFile(NamedTuple):
    """A file with a `signature` is not read again while it keeps it. One that was written just
    before it was read has none yet: its `data` are kept, and compared the next time."""

    signature: Signature | None
    parsed: Parsed
    data: bytes | None = None


class _CachedFolder(NamedTuple):
    """`signatures` of the folders and files that, all unchanged, prove that nothing changed;
    None while that cannot be proved."""

    files: dict[str, _CachedFile]
    contents: FolderContents
    signatures: list[tuple[str, Signature]] | None


class FileCache:
    """One per process is enough. Not locked: two threads may both read a file, no more."""

    def __init__(self) -> None:
        self._folders: dict[Folder, _CachedFolder] = {}

    def read(self, folder: Folder) -> FolderContents:
        cached = self._folders.get(folder)
        if cached is not None and cached.signatures is not None and unchanged(cached.signatures):
            return cached.contents
        if len(self._folders) >= MAX_CACHED_FOLDERS:
            self._folders.clear()
        self._folders[folder] = cached = _read_folder(folder, cached)
        return cached.contents

    def clear(self) -> None:
        self._folders.clear()


def _read_folder(folder: Folder, cached: _CachedFolder | None) -> _CachedFolder:
    old = cached.files if cached is not None else {}
    result = scan(folder)
    files = {path: _read_file(folder, path, problem, old.get(path)) for path, problem in result.files}
    signatures = result.folders
    for path, file in files.items():
        if file.signature is None or signatures is None:
            signatures = None
            break
        signatures.append((path, file.signature))
    parsed = tuple([file.parsed for file in files.values()])
    if cached is not None and list(map(id, parsed)) == list(map(id, cached.contents.files)):
        return cached._replace(files=files, signatures=signatures)
    return _CachedFolder(files, FolderContents(folder, parsed), signatures)


def _read_file(folder: Folder, path: str, problem: Problem | None, before: _CachedFile | None) -> _CachedFile:
    # A file written while it is read keeps its data instead of a signature, and is compared next time.
    signature = before.signature if before is not None and problem is None else None
    if before is not None and signature is not None and unchanged([(path, signature)]):
        return before
    now = time.time_ns()
    content = problem or read_signed(path)
    if isinstance(content, Problem):
        # Never trusted the next time: what made the file unreadable may have passed.
        if before is not None and before.parsed.error == content:
            return before
        return _CachedFile(None, unusable(path, content, folder.home))
    data, signature = content
    if before is not None and before.data == data:
        parsed = before.parsed
    else:
        parsed = parse_at_home(data, path, folder.home, folder.source)
        if folder.left_out and parsed.error is None:
            remedy = "Move the file there, or name the folder .retinue/agents."
            parsed = unusable(path, Problem("left-out", "warning", folder.left_out, remedy), folder.home)
    if just_written(signature, now):
        return _CachedFile(None, parsed, data)
    return _CachedFile(signature, parsed)
