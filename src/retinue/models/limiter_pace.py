"""The pace at which one account may be asked, learned by this process and shared with others.

Nothing is limited until a provider refuses. Then every request waits until the moment it named (or a
growing pause, if it named none), the number of requests at once is halved, and one request goes
ahead to see whether the provider accepts again. After its answer the others follow one by one,
faster every second; every few answers one more is allowed at once. After five quiet minutes all
of this is forgotten.

    calm ──refused──▶ held ──time──▶ one probe ──answered──▶ paced ──quiet──▶ calm
                       ▲                  │
                       └──────refused─────┘

Each process writes a small file of its own into `RETINUE_HOME/limits` when a provider refused
it, and nothing otherwise; so no process waits for another and none can undo what another wrote.
Looking is one `stat` of the folder, at most four times a second (measured: 3 µs; reading all of
it after a change 40 µs, where one table of SQLite needs 175 µs to read and a lock to write).
A folder that cannot be used is reported once and then ignored: sharing limits is optional.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.core.lean import dataclass

CUT = 0.5
WINDOW_SECONDS = 1.0
"""Within this time the number of requests at once is cut only once, however many are refused."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
MOST_ASKED = 3_600.0
"""A Retry-After beyond an hour counts as an hour: then it is tried again."""
PROBE_SECONDS = 5.0
SPREAD_SECONDS = 1.0
"""In the first such time after a pause, starts are spread over it; in each further one they may
follow each other twice as fast."""
_SPREADS = 10
FORGET_SECONDS = 300.0
_ROUNDING = 1e-6


class Pace:
    """All times are monotonic seconds. `draw` returns numbers from 0 to 1, for jitter."""

    __slots__ = (
        "_cut_at",
        "_draw",
        "_fine",
        "_news_at",
        "_next_start",
        "_opened_at",
        "_probe_due",
        "_probe_until",
        "_refused_at",
        "_strikes",
        "calm",
        "held_until",
        "limit",
    )

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._cut_at = self._news_at = self._refused_at = -math.inf
        self._forget()

    def _forget(self) -> None:
        self.calm = True
        self.limit = math.inf
        self.held_until = self._next_start = self._probe_until = 0.0
        self._opened_at = -math.inf
        self._probe_due = False
        self._strikes = self._fine = 0

    def delay(self, now: float, in_flight: int) -> float | None:
        """Return 0.0 to go now, seconds after which to look again, or None to wait until a request ends."""
        if self.calm:
            return 0.0
        if now < self.held_until - _ROUNDING:
            return self.held_until - now
        if now - self._refused_at > FORGET_SECONDS:
            self._forget()
            return 0.0
        if self._probe_until:
            if now < self._probe_until - _ROUNDING:
                return self._probe_until - now
            self._open(now)
        if in_flight >= self.limit:
            return None
        return max(self._next_start - now, 0.0) if now < self._next_start - _ROUNDING else 0.0

    def sent(self, now: float) -> None:
        """Count a request that is being sent."""
        if self.calm:
            return
        if self._probe_due:
            self._probe_due, self._probe_until = False, now + PROBE_SECONDS
        else:
            age = (now - self._opened_at) / SPREAD_SECONDS
            if age < _SPREADS:
                self._next_start = now + 2.0 * self._draw() * SPREAD_SECONDS / self.limit / 2.0**age

    def answered(self, now: float, sent_at: float, in_flight: int) -> None:
        """Record that the provider accepted a request; `in_flight` counts it. What was sent before the last
        refusal says nothing about now."""
        if self.calm or sent_at <= self._news_at:
            return
        self._strikes = 0
        if self._probe_until:
            self._open(now)
        if in_flight >= self.limit:
            self._fine += 1
            if self._fine >= max(1, self.limit // 4):
                self.limit, self._fine = self.limit + 1, 0

    def lost(self, sent_at: float) -> None:
        """Record a request that ended without an answer: if it was the probe, another is sent."""
        if self._probe_until and sent_at > self._news_at:
            self._probe_due, self._probe_until = True, 0.0

    def refused(self, now: float, sent_at: float, in_flight: int, retry_after: float | None, *, busy: bool) -> bool:
        """Record that the provider refused a request (`in_flight` counts it). `busy`: because of too
        many. Return whether others should know."""
        asked = None if retry_after is None or math.isnan(retry_after) else min(max(retry_after, 0.0), MOST_ASKED)
        news = busy and sent_at > self._news_at
        if not news and asked is None:
            self.lost(sent_at)
            return False
        before = self.held_until, self.limit
        self.calm = False
        self._refused_at = now
        if news:
            self._cut(now, in_flight)
            self._strikes += 1
            self._news_at = now
        if asked is not None:
            self._hold(now + asked + self._draw() * min(0.05 + 0.1 * asked, 1.0))
        else:
            pause = min(FIRST_PAUSE * 2.0 ** min(self._strikes - 1, 16), LONGEST_PAUSE)
            self._hold(now + pause * (0.5 + self._draw()))
        return self.held_until > before[0] + 0.5 or self.limit < before[1]

    def adopt(self, now: float, held_until: float, limit: float, refused_at: float) -> None:
        """Take over what another process learned at `refused_at` about the same account."""
        self.calm = False
        self._refused_at = max(self._refused_at, refused_at)
        self._news_at = max(self._news_at, refused_at)
        self.limit = max(min(self.limit, limit), 1.0)
        self._hold(min(held_until, now + MOST_ASKED) + self._draw() * min(0.05 + 0.1 * max(held_until - now, 0.0), 1.0))

    def _cut(self, now: float, in_flight: int) -> None:
        if now - self._cut_at < WINDOW_SECONDS:
            return
        self._cut_at = now
        self._fine = 0
        at_once = in_flight if self.limit == math.inf else self.limit
        self.limit = float(max(math.floor(CUT * at_once), 1))

    def _hold(self, until: float) -> None:
        self._probe_due, self._probe_until = True, 0.0
        self.held_until = max(self.held_until, until)

    def _open(self, now: float) -> None:
        self._probe_until = 0.0
        self._next_start = self._opened_at = now


FOLDER = "limits"
LOOK_SECONDS = 0.25
_AHEAD = 60.0
_SAME_TICK = 0.05
"""A change this fresh may share its time stamp with the next one: it is read twice."""


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """Unix times: no request before `until`; at most `limit` at once; learned `at`."""

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
    """`version` changes when there is news; `records(key)` returns it."""

    def __init__(self, home: Path | None, warn: Callable[[str], None]) -> None:
        self.folder = home / FOLDER if home is not None else None
        self.version = 0
        self.next_look = 0.0 if home is not None else math.inf
        self._warn: Callable[[str], None] | None = warn
        self._me = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._stamp: int | None = None
        self._found: dict[str, tuple[SharedLimit, ...]] = {}

    def look(self, monotonic: float, now: float) -> None:
        """Read the folder if it has changed."""
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

    def records(self, key: str) -> tuple[SharedLimit, ...]:
        """What others have learned about the account `key` and what still counts."""
        return self._found.get(key, ())

    def publish(self, key: str, record: SharedLimit) -> None:
        """Write a record for the other processes."""
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
        found: dict[str, list[SharedLimit]] = {}
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

    def _record(self, entry: os.DirEntry[str]) -> SharedLimit | None:
        import orjson

        try:
            data: Any = orjson.loads(Path(entry.path).read_bytes())
            return SharedLimit(float(data["until"]), float(data["limit"]), float(data["at"]))
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
    """Remove records that are long over, of any process."""
    try:
        if now - entry.stat(follow_symlinks=False).st_mtime > MOST_ASKED + FORGET_SECONDS:
            Path(entry.path).unlink(missing_ok=True)
    except OSError:
        return
