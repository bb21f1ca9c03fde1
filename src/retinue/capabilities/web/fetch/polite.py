"""One host is not asked by everyone at once, and not again before it wants to be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from retinue.capabilities.web.errors import FetchError

_LONGEST_WAIT = 3_600.0
_MOST_HOSTS = 1_000


class _Host:
    def __init__(self, at_once: int) -> None:
        self.room = asyncio.Semaphore(at_once)
        self.next_at = 0.0


class Politeness:
    """Shared by all runs of a process. `at_once` requests to a host, `delay` seconds between
    their starts. A host that answered 429 or 503 with a time is left alone until then."""

    def __init__(self, at_once: int = 2, delay: float = 0.2) -> None:
        self.at_once = at_once
        self.delay = delay
        self._hosts: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Host]] = WeakKeyDictionary()
        self._closed_until: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Raises FetchError RATE_LIMITED at once while the host does not want to be asked."""
        wait = self._closed_until.get(host, 0.0) - time.monotonic()
        if wait > 0:
            raise FetchError("RATE_LIMITED", f"{host} asked not to be asked again for {wait:.0f} more seconds.")
        loop = asyncio.get_running_loop()
        hosts = self._hosts.setdefault(loop, {})
        if len(hosts) > _MOST_HOSTS:
            hosts.clear()
        found = hosts.setdefault(host, _Host(self.at_once))
        async with found.room:
            start = max(loop.time(), found.next_at)
            found.next_at = start + self.delay
            if start > loop.time():
                await asyncio.sleep(start - loop.time())
            yield

    def close(self, host: str, seconds: float) -> None:
        """The host wants to be left alone that long."""
        self._closed_until[host] = time.monotonic() + min(max(seconds, 1.0), _LONGEST_WAIT)
