"""Agent files that did not change are not read again.

A file counts as unchanged while its times, size and inode are the same. File systems stamp
times coarsely, so a file that was written at about the moment it was read is read once more
the next time, and compared: no change is ever missed, however quick.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from retinue.definitions.discover import Folder
from retinue.definitions.parse import parse_at_home, read_bytes, unusable
from retinue.definitions.parsed import Parsed
from retinue.definitions.scan import Seen, Signature, scan
from retinue.domain.spec import Problem

_FINE = 30_000_000
_COARSE = 2_100_000_000
_SECOND = 1_000_000_000
MAX_FOLDERS = 512


@dataclass(frozen=True, slots=True)
class Reading:
    """All files of one folder, in the order of their paths. The same object is returned for as
    long as nothing in the folder changed."""

    folder: Folder
    files: tuple[Parsed, ...]


@dataclass(slots=True)
class _Known:
    seen: list[Seen]
    parsed: dict[str, tuple[Signature, Parsed]]
    reading: Reading
    fresh: dict[str, bytes] = field(default_factory=dict)
    """Files written so shortly before they were read that their signature proves nothing."""


class FileCache:
    """One per process is enough. Not locked: two threads may both read a file, no more."""

    def __init__(self) -> None:
        self._folders: dict[Folder, _Known] = {}

    def read(self, folder: Folder) -> Reading:
        now = time.time_ns()
        seen = scan(folder)
        known = self._folders.get(folder)
        if known is not None and known.seen == seen and not known.fresh:
            return known.reading
        if len(self._folders) >= MAX_FOLDERS:
            self._folders.clear()
        found = _read_all(folder, seen, known, now)
        self._folders[folder] = found
        return found.reading

    def clear(self) -> None:
        self._folders.clear()


def _read_all(folder: Folder, seen: list[Seen], known: _Known | None, now: int) -> _Known:
    parsed: dict[str, tuple[Signature, Parsed]] = {}
    fresh: dict[str, bytes] = {}
    files: list[Parsed] = []
    for path, state in seen:
        if isinstance(state, Problem):
            files.append(unusable(path, state, folder.home))
            continue
        old = known.parsed.get(path) if known is not None else None
        unsure = known is not None and path in known.fresh
        if old is not None and old[0] == state and not unsure:
            parsed[path] = old
            files.append(old[1])
            continue
        data = read_bytes(path)
        if isinstance(data, Problem):
            files.append(unusable(path, data, folder.home))
            fresh[path] = b""
            continue
        if old is not None and old[0] == state and known is not None and known.fresh.get(path) == data:
            result = old[1]
        else:
            result = parse_at_home(data, path, folder.home, folder.source)
        parsed[path] = (state, result)
        files.append(result)
        if _just_written(state, now):
            fresh[path] = data
    if (
        known is not None
        and len(files) == len(known.reading.files)
        and all(new is old for new, old in zip(files, known.reading.files, strict=True))
    ):
        return _Known(seen, parsed, known.reading, fresh)
    return _Known(seen, parsed, Reading(folder, tuple(files)), fresh)


def _just_written(state: Signature, now: int) -> bool:
    newest = max(state[0], state[1])
    window = _COARSE if newest % _SECOND == 0 else _FINE
    return newest > now - window
