"""Cuts short what a run is waiting for, without a second task.

While a run waits for its model it is one task, suspended in the model's stream. A limit that
fires or a person who stops the run cancels exactly that wait, the way `asyncio.timeout` does:
the cancellation is taken back again when it arrives here, unless someone else cancelled too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from retinue.loop.ending import Ending

T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 - it is a signal between two functions, not an error
    """The wait was cut short; `Interrupt.ending` says why."""


class Interrupt:
    """The first reason wins and stays."""

    __slots__ = ("_cancelled", "_task", "_waker", "ending", "loop")

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self.loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False
        self._waker: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the run waits for its model at this moment."""
        return self._task is not None

    def fire(self, ending: Ending) -> None:
        """Ends the run as soon as it can be. Safe to call at any time from the same event loop."""
        if self.ending is not None:
            return
        self.ending = ending
        self.wake()
        if self._task is None:
            return
        if self._task is asyncio.current_task():
            # Called by the model itself, in the middle of its step: a cancellation now could
            # strike anywhere later. It may still end this step by itself; look again then.
            self.loop.call_soon(self._cut)
        else:
            self._cut()

    def _cut(self) -> None:
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()

    async def part(self, stream: AsyncGenerator[T, None]) -> T:
        """The next part of `stream`. Raises Interrupted, or StopAsyncIteration at its end."""
        if self.ending is not None:
            raise Interrupted
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A run must be iterated by an asyncio task.")
        others = task.cancelling()
        self._task = task
        try:
            return await anext(stream)
        except asyncio.CancelledError:
            if self._cancelled and task.cancelling() - 1 <= others:
                raise Interrupted from None
            raise
        finally:
            self._task = None
            if self._cancelled:
                self._cancelled = False
                task.uncancel()

    async def unless(self, work: Awaitable[T]) -> T | None:
        """What `work` gives; None if the run is interrupted first: then it is cancelled, and
        waited for."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done() and self.ending is None:
                waker = asyncio.ensure_future(self.woken())
                try:
                    await asyncio.wait({task, waker}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waker.cancel()
                    await asyncio.gather(waker, return_exceptions=True)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def woken(self) -> None:
        """Waits for `wake`; returns at once if it came since the last wait."""
        if self._waker is None:
            self._waker = self.loop.create_future()
        try:
            await self._waker
        finally:
            self._waker = None

    def wake(self) -> None:
        if self._waker is None:
            self._waker = self.loop.create_future()
        if not self._waker.done():
            self._waker.set_result(None)
