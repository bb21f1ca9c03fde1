"""From the log to the screen: every event once, in order, painted at most twenty times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from retinue.domain.events import Event

if TYPE_CHECKING:
    from retinue.log.store import Log
    from retinue.log.subscribe import Subscription

Take = Callable[[Event], None]
BATCH = 200
"""Events taken in one go before the keyboard gets its turn again."""


class Feed:
    """Of all runs of this process. `take` is called for every event and must be quick."""

    def __init__(self, log: Log, take: Take) -> None:
        self._log = log
        self._take = take
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._subscription = self._log.subscribe()
        self._task = asyncio.create_task(self._follow(self._subscription), name="feed of the terminal app")

    async def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, subscription: Subscription) -> None:
        taken = 0
        async for event in subscription:
            self._take(event)
            taken += 1
            if taken % BATCH == 0:
                await asyncio.sleep(0)
