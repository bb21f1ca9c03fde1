"""A server program that several runs share: language servers and MCP servers alike.

The first use starts the server, and concurrent uses wait for the same start. The server is closed when it has had no
holder for a while. After a crash the next use starts it again, with growing pauses if it keeps crashing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Generic, Protocol, TypeVar

FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0
PATIENCE_SECONDS = 3.0
"""A use waits for a pause of at most this length. A longer pause is an error that states the remaining time."""
MAX_END_SECONDS = 5.0
"""The most time that a cancelled start may take to end."""
STEADY_SECONDS = 30.0
"""A server that ran this long counts as started, so a later end is not counted as a crash."""


class Connection(Protocol):
    """The connection to a started server."""

    @property
    def live(self) -> bool: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class SharedServer(Generic[C]):
    """One shared server, running or not."""

    def __init__(self, linger_seconds: float) -> None:
        """The server is closed `linger_seconds` after its last holder has released it."""
        self._linger_seconds = linger_seconds
        self._holders: dict[object, Any] = {}
        self._connection: C | None = None
        self._starting: asyncio.Task[C] | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._crashes = 0
        self._since = 0.0
        self._not_before = 0.0
        self.starts = 0

    async def _connect(self) -> C:
        """Start the server."""
        raise NotImplementedError

    def _too_soon(self, seconds: float) -> Exception:
        """Return the error for a use of a crashing server that may not be started again for `seconds`."""
        raise NotImplementedError

    def _ended(self, seconds: float) -> None:
        """Record that the server has ended, `seconds` after its start."""
        if seconds < STEADY_SECONDS:
            self._count_crash()
        else:
            self._crashes = 0

    @property
    def connection(self) -> C | None:
        """The live connection, if there is one."""
        return self._connection if self._connection is not None and self._connection.live else None

    @property
    def held(self) -> bool:
        return bool(self._holders)

    def hold(self, holder: object, what: Any = None) -> None:
        """Keep the server from being closed, until `holder` releases it."""
        self._holders[holder] = what
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def release(self, holder: object) -> None:
        """Release the server. It is closed later unless another holder comes before."""
        self._holders.pop(holder, None)
        self._close_later(self._linger_seconds)

    async def ready(self) -> C:
        """Return the live connection, and start the server if necessary. Raise the errors of a start."""
        if (connection := self.connection) is not None:
            return connection
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"start {self}")
            self._starting.add_done_callback(self._started)
        # Others may wait for the same start, so a caller that is cancelled must not end it.
        return await asyncio.shield(self._starting)

    async def close(self) -> None:
        """End the server, or the start that is under way, even if it is held. The next use starts it again."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        starting, connection = self._starting, self._connection
        self._starting = self._connection = None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting}, timeout=MAX_END_SECONDS)
        if connection is not None:
            await connection.close()
        # The clock closes the server in a task of its own, which cannot wait for itself.
        if others := self._ending - {asyncio.current_task()}:
            await asyncio.wait(others)

    def _started(self, task: asyncio.Task[C]) -> None:
        if self._starting is task:
            self._starting = None
        # Everyone who waited has the exception; fetched here, asyncio does not report it as lost.
        if not task.cancelled():
            task.exception()
        self._close_later(self._linger_seconds)

    async def _start(self) -> C:
        old, self._connection = self._connection, None
        if old is not None:
            await old.close()
            self._ended(time.monotonic() - self._since)
        wait = self._not_before - time.monotonic()
        if wait > PATIENCE_SECONDS:
            raise self._too_soon(wait)
        if wait > 0:
            await asyncio.sleep(wait)
        connection = await self._connect()
        self._connection, self._since = connection, time.monotonic()
        return connection

    def _count_crash(self) -> None:
        self._crashes += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._crashes - 1), MAX_PAUSE_SECONDS)
        self._not_before = time.monotonic() + pause

    def _close_later(self, seconds: float) -> None:
        if not self._holders and self._closing is None and (self._connection or self._starting):
            self._closing = asyncio.get_running_loop().call_later(seconds, self._close_unused)

    def _close_unused(self) -> None:
        self._closing = None
        if not self._holders:
            ending = asyncio.create_task(self.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
