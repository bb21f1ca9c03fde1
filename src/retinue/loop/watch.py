"""All clocks of one run on one timer: the run's time, its idle time, the time of each call.

A clock here counts only time the process was awake to see. A host that slept, or an event loop
that stood still, comes back to a tick that is far too late; what exceeds the tick is not
counted, so that a closed laptop does not end every run at once.
"""

from __future__ import annotations

from collections.abc import Callable

from retinue.core.clock import Clock, Timer

_LONGEST_TICK = 30.0
_TICKS_PER_LIMIT = 4
_TOLERANCE = 1.0
_ROUNDING = 1e-6


def _nothing() -> None:
    pass


class Countdown:
    """Calls `expire` once when `limit` seconds were spent, unless fed, paused or stopped.

    Pauses nest: two reasons to wait need two resumes.
    """

    __slots__ = ("_expire", "_fed", "_pauses", "_watch", "limit", "spent")

    def __init__(self, watch: Watch, limit: float, expire: Callable[[], None]) -> None:
        self.limit = limit
        self.spent = 0.0
        self._fed = 0.0
        self._pauses = 0
        self._watch = watch
        self._expire = expire

    @property
    def expired(self) -> bool:
        return not self._pauses and self.spent >= self.limit - _ROUNDING

    def feed(self, now: float) -> None:
        """A sign of life at `now`, or silence expected until then: what was spent is forgotten.
        Called for every delta, so it does nothing else."""
        self.spent = 0.0
        self._fed = now

    def pause(self) -> None:
        self._watch.settle()
        self._pauses += 1

    def resume(self) -> None:
        self._watch.settle()
        self._pauses -= 1
        self._watch.schedule()

    def stop(self) -> None:
        """Stop for good, and release the callback."""
        self._watch.forget(self)
        self._expire = _nothing

    def again(self) -> None:
        """Count from zero again, even after it expired."""
        self._watch.add(self)


class Watch:
    """Counts down every countdown of a run with at most one timer pending."""

    __slots__ = ("_active", "_clock", "_due", "_last", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: list[Countdown] = []
        self._timer: Timer | None = None
        self._due = 0.0
        self._last = clock.monotonic()

    def start(self, limit: float | None, expire: Callable[[], None]) -> Countdown:
        """A new countdown; with no limit one that never expires."""
        countdown = Countdown(self, limit or 0.0, expire)
        if limit is not None:
            self.add(countdown)
        return countdown

    def add(self, countdown: Countdown) -> None:
        self.settle()
        countdown.feed(self._last)
        if countdown not in self._active:
            self._active.append(countdown)
        self.schedule()

    def forget(self, countdown: Countdown) -> None:
        if countdown in self._active:
            self._active.remove(countdown)

    def close(self) -> None:
        self._active.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def settle(self) -> None:
        """Count the time since the last look, as far as it was seen."""
        now = self._clock.monotonic()
        passed = now - self._last
        if self._timer is not None:
            planned = max(self._due - self._last, 0.0)
            passed = min(passed, 2 * planned + _TOLERANCE)
        for countdown in self._active:
            if not countdown._pauses:
                countdown.spent += max(min(passed, now - countdown._fed), 0.0)
        self._last = now

    def schedule(self) -> None:
        """Make sure a tick comes early enough; a tick that comes too early does no harm."""
        delay = _LONGEST_TICK
        running = False
        for countdown in self._active:
            if not countdown._pauses:
                running = True
                remaining = countdown.limit - countdown.spent
                delay = min(delay, remaining, max(countdown.limit / _TICKS_PER_LIMIT, 0.01))
        if not running:
            return
        delay = max(delay, 0.0)
        due = self._last + delay
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.call_later(delay, self._tick)

    def _tick(self) -> None:
        self.settle()
        self._timer = None
        for countdown in [each for each in self._active if each.expired]:
            self.forget(countdown)
            countdown._expire()
        self.schedule()
