"""The smallest engine: a queue in one process. Attempts die with it, so none is ever dead."""

from __future__ import annotations

import asyncio

from retinue.core.placement import Attempt
from retinue.engine.placement import Serve


class LocalPlacement:
    """Serves attempts as tasks of the event loop that calls `take`, `concurrency` at a time."""

    def __init__(self, concurrency: int = 4) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._offered: dict[str, Attempt] = {}
        self._news = asyncio.Event()
        self._newest: dict[tuple[str, str], int] = {}

    async def offer(self, attempt: Attempt) -> bool:
        key = (attempt.project, attempt.run_id)
        if self._newest.get(key, 0) >= attempt.number:
            return False
        self._newest[key] = attempt.number
        self._offered[attempt.id] = attempt
        self._news.set()
        return True

    async def withdraw(self, attempt: Attempt) -> None:
        self._offered.pop(attempt.id, None)

    async def beat(self) -> None:
        """Nobody else looks."""

    async def take(self, serve: Serve) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._slots.acquire()
                while not self._offered:
                    self._news.clear()
                    await self._news.wait()
                attempt = self._offered.pop(next(iter(self._offered)))
                tasks.create_task(self._serve(serve, attempt))

    async def _serve(self, serve: Serve, attempt: Attempt) -> None:
        try:
            await serve(attempt)
        finally:
            self._slots.release()

    async def dead(self) -> list[Attempt]:
        return []
