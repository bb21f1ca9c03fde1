"""What became of branches in the integration queue, kept in the project's state folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from retinue.core.codec import from_data, to_data
from retinue.core.lean import dataclass
from retinue.errors import StateError
from retinue.settings.places import private_folder

_FILE = "integrate.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One branch as it was at `tip`. Parked ones have a reason, and `files` in conflict or the end
    of what the check said; merged ones the `commit` that the target is at since."""

    branch: str
    tip: str
    onto: str
    state: Literal["merged", "parked"]
    reason: str = ""
    detail: str = ""
    files: tuple[str, ...] = ()
    commit: str | None = None
    at: float = 0.0

    def because(self, reason: str, detail: str = "", files: tuple[str, ...] = ()) -> Entry:
        return replace(self, state="parked", reason=reason, detail=detail, files=files)

    def merged(self, commit: str, reason: str = "") -> Entry:
        return replace(self, state="merged", commit=commit, reason=reason)


class Queue:
    """The entries by branch. Changes need the lock: `open`."""

    def __init__(self, state: Path) -> None:
        self._path = state / _FILE
        self.entries: dict[str, Entry] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            for data in json.loads(self._path.read_text("utf-8")).values():
                entry = from_data(Entry, data)
                self.entries[entry.branch] = entry

    @classmethod
    @contextlib.contextmanager
    def open(cls, state: Path) -> Iterator[Queue]:
        """Only one process integrates at a time. Raises StateError while another one does."""
        path = private_folder(state) / "integrate.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # Windows
                pass
            except BlockingIOError:
                raise StateError("Another process is integrating in this project.", remedy="Wait for it.") from None
            yield cls(state)
        finally:
            os.close(descriptor)

    def settled(self, branch: str, tip: str, onto: str) -> Entry | None:
        """What is known of the branch as it is now."""
        entry = self.entries.get(branch)
        return entry if entry is not None and (entry.tip, entry.onto) == (tip, onto) else None

    def put(self, entry: Entry) -> None:
        self.entries[entry.branch] = entry
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({name: to_data(each) for name, each in self.entries.items()}), "utf-8")
        new.replace(self._path)
