"""A clock that moves only when told, so that hours of limits are tested in milliseconds."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

_SETTLING = 50


@dataclass(order=True, slots=True)
class _Due:
    at: float
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """Time stands still between `advance` and `jump`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._start = now
        self._passed = 0.0
        self._numbers = 0
        self._timers: list[_Due] = []

    def now(self) -> float:
        return self._start + self._passed

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _Due:
        self._numbers += 1
        timer = _Due(self._passed + max(seconds, 0.0), self._numbers, callback)
        heapq.heappush(self._timers, timer)
        return timer

    @property
    def pending(self) -> int:
        """Timers that would still fire."""
        return sum(not timer.cancelled for timer in self._timers)

    async def advance(self, seconds: float) -> None:
        """Let time pass: everything due happens at its own moment, in order, and the tasks it
        woke get to run before the next."""
        end = self._passed + seconds
        await settle()
        while self._timers and self._timers[0].at <= end:
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._passed = max(self._passed, timer.at)
                timer.callback()
                await settle()
        self._passed = end
        await settle()

    async def jump(self, seconds: float) -> None:
        """Time passes while the process sleeps: every timer on the way is late."""
        self._passed += seconds
        await self.advance(0.0)


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(_SETTLING):
        await asyncio.sleep(0)
