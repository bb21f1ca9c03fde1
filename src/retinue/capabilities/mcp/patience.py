"""How long a call may be silent. Progress starts it anew; waiting for a person stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Patience:
    """Use with `async with`, once: TimeoutError is raised inside when it is over."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._timeout = asyncio.timeout(seconds)
        self._paused = 0
        self._over = False

    async def __aenter__(self) -> Patience:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._over = True
        await self._timeout.__aexit__(kind, error, None)

    def again(self) -> None:
        """There was a sign of life."""
        if self.seconds is not None and not self._paused:
            self._set(asyncio.get_running_loop().time() + self.seconds)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._paused += 1
        self._set(None)
        try:
            yield
        finally:
            self._paused -= 1
            self.again()

    def _set(self, when: float | None) -> None:
        if not self._over and not self._timeout.expired():
            self._timeout.reschedule(when)
