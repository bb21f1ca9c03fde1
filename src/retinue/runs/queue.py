"""The slots of background runs: first come, first served, with a limit that can change live.

Foreground and nested runs never pass through here, so a parent that waits for its child cannot
keep the child from starting.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict


class Queue:
    """`limit` runs hold a slot at once; the others wait in the order they came."""

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 1)
        self._holding: set[str] = set()
        self._waiting: OrderedDict[str, asyncio.Future[None]] = OrderedDict()

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Raising it starts waiting runs at once; lowering it lets running ones finish."""
        self._limit = max(limit, 1)
        self._admit()

    @property
    def running(self) -> int:
        return len(self._holding)

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def position(self, run_id: str) -> int | None:
        """1 for the next to start; None when it is not waiting."""
        return next((number for number, each in enumerate(self._waiting, 1) if each == run_id), None)

    def join(self, run_id: str) -> asyncio.Future[None]:
        """Takes a place in the line, now. The future is done when the run holds a slot, and
        cancelled when it left the line before."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[run_id] = place
        self._admit()
        return place

    def leave(self, run_id: str) -> None:
        """Gives back the slot or the place in the line; does nothing for who has neither."""
        place = self._waiting.pop(run_id, None)
        if place is not None:
            place.cancel()
        self._holding.discard(run_id)
        self._admit()

    def rest(self, run_id: str) -> None:
        """Gives back the slot of a run that waits for a person."""
        self._holding.discard(run_id)
        self._admit()

    async def wake(self, run_id: str) -> None:
        """Takes a slot again, behind those who wait for one already. Several calls of one run
        may want it back at once; cancelling one of them takes nothing from the others."""
        if run_id in self._holding:
            return
        place = self._waiting.get(run_id) or self.join(run_id)
        await asyncio.wait({place})

    def _admit(self) -> None:
        while self._waiting and len(self._holding) < self._limit:
            run_id, place = self._waiting.popitem(last=False)
            if not place.cancelled():
                self._holding.add(run_id)
                place.set_result(None)
