"""What the user's other processes on this machine have learned about an account.

Each process writes a small file of its own into `RETINUE_HOME/limits` when a provider refused
it, and nothing otherwise; so no process waits for another and none can undo what another wrote.
Looking is one `stat` of the folder, at most four times a second (measured: 3 µs; reading all of
it after a change 40 µs, where one table of SQLite needs 175 µs to read and a lock to write).
A store that cannot be used is reported once and then left alone: limits are a courtesy.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.core.lean import dataclass
from retinue.models.limiter_pace import FORGET_SECONDS, MOST_ASKED

FOLDER = "limits"
LOOK_SECONDS = 0.25
_AHEAD = 60.0
_SAME_TICK = 0.05
"""A change this fresh may share its time stamp with the next one: it is read twice."""


@dataclass(frozen=True, slots=True)
class Record:
    """Unix times: nobody sends before `until`; at most `limit` at once; learned `at`."""

    until: float
    limit: float
    at: float

    def valid(self, now: float) -> bool:
        """False for what is old, from the future, or nonsense."""
        numbers = all(math.isfinite(number) for number in (self.until, self.limit, self.at))
        if not numbers or self.limit < 1 or self.until > self.at + MOST_ASKED + _AHEAD:
            return False
        return self.at <= now + _AHEAD and now < max(self.at + FORGET_SECONDS, self.until)


class SharedLimits:
    """`version` changes when there is news; `records(key)` gives it."""

    def __init__(self, home: Path | None, warn: Callable[[str], None]) -> None:
        self.folder = home / FOLDER if home is not None else None
        self.version = 0
        self.next_look = 0.0 if home is not None else math.inf
        self._warn: Callable[[str], None] | None = warn
        self._me = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._stamp: int | None = None
        self._found: dict[str, tuple[Record, ...]] = {}

    def look(self, monotonic: float, now: float) -> None:
        """Reads the folder if it has changed."""
        folder = self.folder
        if folder is None:
            return
        self.next_look = monotonic + LOOK_SECONDS
        try:
            stamp = folder.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            self._read(folder, now)
        except FileNotFoundError:
            return
        except OSError as error:
            self._give_up(error)
            return
        self._stamp = None if now - stamp / 1e9 < _SAME_TICK else stamp

    def records(self, key: str) -> tuple[Record, ...]:
        """What others have learned about the account `key` and what still counts."""
        return self._found.get(key, ())

    def publish(self, key: str, record: Record) -> None:
        """Tells the others."""
        folder = self.folder
        if folder is None:
            return
        import orjson

        from retinue.settings.places import private_folder

        data = orjson.dumps({"until": record.until, "limit": record.limit, "at": record.at})
        draft, place = folder / f".{key}.{self._me}", folder / f"{key}.{self._me}"
        try:
            private_folder(folder)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
            draft.replace(place)
        except OSError as error:
            self._give_up(error)

    def _read(self, folder: Path, now: float) -> None:
        found: dict[str, list[Record]] = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                key, _, owner = entry.name.partition(".")
                if owner == self._me:
                    continue
                record = self._record(entry) if key else None
                if record is not None and record.valid(now):
                    found.setdefault(key, []).append(record)
                else:
                    _sweep(entry, now)
        self._found = {key: tuple(records) for key, records in found.items()}
        self.version += 1

    def _record(self, entry: os.DirEntry[str]) -> Record | None:
        import orjson

        try:
            data: Any = orjson.loads(Path(entry.path).read_bytes())
            return Record(float(data["until"]), float(data["limit"]), float(data["at"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            self._complain(f"{entry.path} is not a record of limits ({type(error).__name__}); it is ignored.")
            return None

    def _give_up(self, error: OSError) -> None:
        self._complain(
            f"Limits cannot be shared with other processes through {self.folder} ({error.strerror or error}). "
            "Each process keeps its own."
        )
        self.folder, self.next_look, self._found = None, math.inf, {}

    def _complain(self, text: str) -> None:
        warn, self._warn = self._warn, None
        if warn is not None:
            warn(text)


def _sweep(entry: os.DirEntry[str], now: float) -> None:
    """Removes what is long over, whoever left it."""
    try:
        if now - entry.stat(follow_symlinks=False).st_mtime > MOST_ASKED + FORGET_SECONDS:
            Path(entry.path).unlink(missing_ok=True)
    except OSError:
        return
