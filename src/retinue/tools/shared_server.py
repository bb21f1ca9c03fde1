"""A server program that several runs share: language servers and MCP servers alike.

It is started by its first use; others that come meanwhile wait for the same start. It is closed when nobody has held it
for a while. One that crashes is started again by the next use, later and later if it keeps crashing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Generic, Protocol, TypeVar

FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0
PATIENCE_SECONDS = 3.0
"""A pause of at most this long is waited for; a longer one is an error that says when."""
MAX_END_SECONDS = 5.0
"""How long a start that was cancelled may take to end."""
STEADY_SECONDS = 30.0
"""A server that lived this long has not crashed at its start."""


class Connection(Protocol):
    """What a started server is reached by."""

    @property
    def live(self) -> bool: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class SharedServer(Generic[C]):
    """One such server, whether it runs or not."""

    def __init__(self, linger_seconds: float) -> None:
        """It is closed `linger_seconds` after the last holder has released it."""
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
        """Return the error for a use while the server, which keeps crashing, is not to be started for `seconds`."""
        raise NotImplementedError

    def _ended(self, seconds: float) -> None:
        """Take notice that the server has ended, `seconds` after its start."""
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
        """Let go of the server. It is closed a while later, unless someone holds it again by then."""
        self._holders.pop(holder, None)
        self._close_later(self._linger_seconds)

    async def ready(self) -> C:
        """Return the live connection, started if it must be. Raise what a start raises."""
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
