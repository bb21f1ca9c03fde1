"""The pace at which one account may be asked, learned by this process and shared with others.

Nothing is limited until a provider refuses. Then every request waits until the moment it named (or a
growing pause, if it named none), the number of requests at once is halved, and one request goes
ahead to see whether the provider accepts again. After its answer the others follow one by one,
faster every second; every few answers one more is allowed at once. After five quiet minutes all
of this is forgotten.

    calm ──refused──▶ held ──time──▶ one probe ──answered──▶ paced ──quiet──▶ calm
                       ▲                  │
                       └──────refused─────┘

A provider's prompt cache can be read once the first answer to that prompt has begun. So while the first
request with a cold prefix is on its way, others with the same prefix wait for its first word, but not
for long; a run that is alone never waits (`Prefixes`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from retinue.core.clock import Timer

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
        if now < self._next_start - _ROUNDING:
            return self._next_start - now
        return 0.0

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

    def refused(self, now: float, sent_at: float, in_flight: int, retry_after: float | None, *, busy: bool) -> None:
        """Record that the provider refused a request (`in_flight` counts it). `busy`: because of too
        many."""
        asked = None
        if retry_after is not None and not math.isnan(retry_after):
            asked = min(max(retry_after, 0.0), MOST_ASKED)
        news = busy and sent_at > self._news_at
        if not news and asked is None:
            self.lost(sent_at)
            return
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

    def hold(self, now: float, until: float) -> None:
        """Wait as another process was told to. How many go at once is not learned from others."""
        if until > max(now, self.held_until):
            self.calm = False
            self._refused_at = now
            self._hold(until)

    def _cut(self, now: float, in_flight: int) -> None:
        if now - self._cut_at < WINDOW_SECONDS:
            return
        self._cut_at = now
        self._fine = 0
        # Without a limit so far, what was out at once is what proved to be too much.
        at_once = self.limit
        if at_once == math.inf:
            at_once = in_flight
        self.limit = float(max(math.floor(CUT * at_once), 1))

    def _hold(self, until: float) -> None:
        self._probe_due, self._probe_until = True, 0.0
        self.held_until = max(self.held_until, until)

    def _open(self, now: float) -> None:
        self._probe_until = 0.0
        self._next_start = self._opened_at = now


WARM_SECONDS = 240.0
"""Providers keep a prefix for five minutes after its last use."""
LEAST_WAIT, LONGEST_WAIT = 2.0, 10.0

W = TypeVar("W")


class Prefix(Generic[W]):
    """One prefix. `leader` asks first; `followers` wait for its first word."""

    __slots__ = ("followers", "leader", "led_at", "timer", "warm_until")

    def __init__(self) -> None:
        self.warm_until = 0.0
        self.leader: object | None = None
        self.led_at = 0.0
        self.followers: list[W] = []
        self.timer: Timer | None = None


class Prefixes(Generic[W]):
    """The prefixes of one account, and how long first words took there."""

    _MOST = 256

    def __init__(self) -> None:
        self._known: dict[str, Prefix[W]] = {}
        self._first_words: deque[float] = deque(maxlen=16)

    def get(self, key: str, now: float) -> Prefix[W]:
        prefix = self._known.get(key)
        if prefix is None:
            if len(self._known) >= self._MOST:
                for other, cold in list(self._known.items()):
                    if cold.leader is None and cold.warm_until <= now:
                        del self._known[other]
            prefix = self._known[key] = Prefix()
        return prefix

    def followers(self) -> list[W]:
        found: list[W] = []
        for prefix in self._known.values():
            found += prefix.followers
        return found

    def longest_wait(self) -> float:
        """Return how long to wait for a leader: somewhat longer than first words usually take."""
        usual = 0.0
        if self._first_words:
            usual = 1.5 * sorted(self._first_words)[len(self._first_words) // 2]
        return min(max(usual, LEAST_WAIT), LONGEST_WAIT)

    def note_first_word(self, seconds: float) -> None:
        """Remember how long a first word took."""
        self._first_words.append(seconds)
