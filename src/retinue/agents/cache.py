"""Agent files that did not change are not read again.

A file counts as unchanged while its times, size and inode are the same. File systems stamp
times coarsely, so a file that was written at about the moment it was read is read once more
the next time, and compared: no change is ever missed, however quick.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from msgspec import Struct

from retinue.agents.folders import Folder
from retinue.agents.frontmatter import Parsed
from retinue.agents.parse import parse_at_home, unusable
from retinue.agents.scan import Signature, just_written, read_signed, scan, unchanged
from retinue.core.spec import Problem

MAX_FOLDERS = 512


class FolderContents(Struct, frozen=True):
    """All files of one folder, in the order of their paths. The same object is returned for as
    long as nothing in the folder changed."""

    folder: Folder
    files: tuple[Parsed, ...]


class _File(NamedTuple):
    """A file with a `signature` is not read again while it keeps it. One that was written just
    before it was read has none yet: its `data` are kept, and compared the next time."""

    signature: Signature | None
    parsed: Parsed
    data: bytes | None = None


class _Known(NamedTuple):
    """`signatures` of the folders and files that, all unchanged, prove that nothing changed;
    None while that cannot be proved."""

    files: dict[str, _File]
    reading: FolderContents
    signatures: list[tuple[str, Signature]] | None


class FileCache:
    """One per process is enough. Not locked: two threads may both read a file, no more."""

    def __init__(self) -> None:
        self._folders: dict[Folder, _Known] = {}

    def read(self, folder: Folder) -> FolderContents:
        known = self._folders.get(folder)
        if known is not None and known.signatures is not None and unchanged(known.signatures):
            return known.reading
        if len(self._folders) >= MAX_FOLDERS:
            self._folders.clear()
        found = _read_folder(folder, known)
        self._folders[folder] = found
        return found.reading

    def clear(self) -> None:
        self._folders.clear()


def _read_folder(folder: Folder, known: _Known | None) -> _Known:
    old = known.files if known is not None else {}
    scanned = scan(folder)
    files: dict[str, _File] = {}
    for path, problem in scanned.files:
        before = old.get(path)
        if problem is not None:
            files[path] = _refuse_file(folder, path, problem, before)
        elif before is not None and before.signature is not None and unchanged([(path, before.signature)]):
            files[path] = before
        else:
            files[path] = _read(folder, path, before)
    signatures = scanned.folders
    for path, file in files.items():
        if signatures is None:
            break
        if file.signature is None:
            signatures = None
        else:
            signatures.append((path, file.signature))
    if known is not None and _results(files) == _results(known.files):
        return _Known(files, known.reading, signatures)
    return _Known(files, FolderContents(folder, tuple([file.parsed for file in files.values()])), signatures)


def _read(folder: Folder, path: str, before: _File | None) -> _File:
    # A file written while it is read keeps its data instead of a signature, and is compared next time.
    now = time.time_ns()
    found = read_signed(path)
    if isinstance(found, Problem):
        return _refuse_file(folder, path, found, before)
    data, signature = found
    if before is not None and before.data == data:
        parsed = before.parsed
    else:
        parsed = parse_at_home(data, path, folder.home, folder.source)
        if folder.left_out and parsed.error is None:
            remedy = "Move the file there, or name the folder .retinue/agents."
            parsed = unusable(path, Problem("left-out", "warning", folder.left_out, remedy), folder.home)
    if just_written(signature, now):
        return _File(None, parsed, data)
    return _File(signature, parsed)


def _refuse_file(folder: Folder, path: str, problem: Problem, before: _File | None) -> _File:
    # Never trusted the next time: what made the file unreadable may have passed.
    if before is not None and before.parsed.error == problem:
        return before
    return _File(None, unusable(path, problem, folder.home))


def _results(files: dict[str, _File]) -> list[tuple[str, int]]:
    return [(path, id(file.parsed)) for path, file in files.items()]
