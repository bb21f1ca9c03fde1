"""Events as they become durable, for whoever asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from retinue.core.events import TRANSIENT, Event, RunEnded

BACKLOG = 10_000
"""A subscriber that is this many events behind gets no more streamed pieces until it has caught
up: what they say arrives again, whole. Durable events are never left out."""


class Subscription:
    """An async iterator over events. Ends when the run it is about has ended, when it is closed,
    or when the log is."""

    def __init__(self, until: str | None, leave: Callable[[Subscription], None]) -> None:
        self._until = until
        self._leave = leave
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    def push(self, event: Event) -> None:
        if self._over:
            return
        if len(self._events) >= BACKLOG and isinstance(event.body, TRANSIENT):
            return
        self._events.append(event)
        if event.run_id == self._until and isinstance(event.body, RunEnded):
            self.close()
        else:
            self._wake()

    def close(self) -> None:
        """No further events; those already here can still be read."""
        if not self._over:
            self._over = True
            self._leave(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
