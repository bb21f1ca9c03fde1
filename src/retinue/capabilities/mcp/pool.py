"""One connection per server configuration, shared by every run of the process.

A server is started by the first use; others that come meanwhile wait for the same start. It is
closed some time after the last run that holds it has ended. One that crashes is started again by
the next use, later and later if it keeps crashing. How many calls it gets at once is bounded.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from retinue.capabilities.mcp.config import ServerConfig
from retinue.capabilities.mcp.connection import ConnectionOptions, McpConnection, Patience, Progress, ServerGoneError
from retinue.capabilities.mcp.tool_list import Listing, ListingMemory
from retinue.tools.processes import CannotStartError, ErrorLog

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

START_SECONDS = 10.0
LINGER_SECONDS = 30.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_PATIENCE = 3.0
"""A pause of at most this long is waited for; a longer one is an error that says when."""
_STEADY_SECONDS = 30.0
"""A server that lived this long has not crashed at its start."""


class Caller(Struct, eq=False):
    """Who calls: their folders, how long they wait, and a way to the person behind them (None:
    there is none)."""

    roots: tuple[Path, ...]
    seconds: float | None = None
    elicit: Callable[[ElicitRequestParams], Coroutine[Any, Any, ElicitResult]] | None = None
    traceparent: str = ""
    """The place in a trace that the call belongs to, where there is one."""
    patience: Patience | None = None
    questions: set[asyncio.Task[ElicitResult]] = field(default_factory=set)


class PoolOptions(Struct, frozen=True):
    """Where a pool keeps things, and how long it waits."""

    cwd: Path
    environment: Mapping[str, str]
    logs: Path
    memory: ListingMemory
    redact: Callable[[str], str] = str
    start_seconds: float = START_SECONDS
    linger_seconds: float = LINGER_SECONDS


class Server:
    """One configured server as the runs of this process share it."""

    def __init__(self, config: ServerConfig, options: PoolOptions, roots: tuple[Path, ...]) -> None:
        self.config = config
        self._options = options
        self._holders: dict[object, tuple[Path, ...]] = {}
        self._first_roots = roots
        self._connection: McpConnection | None = None
        self._starting: asyncio.Task[McpConnection] | None = None
        self._slots = asyncio.Semaphore(config.concurrency)
        self._calls: list[Caller] = []
        self._crashes = 0
        self._since = 0.0
        self._not_before = 0.0
        self._closing: asyncio.TimerHandle | None = None
        self._gone: asyncio.Task[None] | None = None
        self._doubt: asyncio.Task[None] | None = None
        self.starts = 0
        self.listing: Listing | None = None
        self.problem: str | None = None
        self.version = 0
        """Grows whenever the list of tools changes."""

    @property
    def live(self) -> bool:
        return self._connection is not None and self._connection.live

    @property
    def pid(self) -> int | None:
        return self._connection.pid if self._connection is not None and self._connection.live else None

    @property
    def log_path(self) -> Path:
        """Where everything is that it says beside the protocol."""
        return self._options.logs / f"{_file_name(self.config.name)}.log"

    @property
    def idle(self) -> bool:
        """Whether it has done its work: nobody holds it, and nothing of it runs."""
        return bool(self.starts) and not (self._holders or self.live or self._starting)

    @property
    def held(self) -> bool:
        return bool(self._holders)

    @property
    def uses_roots(self) -> bool:
        known = self._connection is not None and self._connection.uses_roots
        return known or (self.listing is not None and self.listing.uses_roots)

    @property
    def roots(self) -> tuple[Path, ...]:
        """What every run that holds it may touch."""
        first, *others = list(self._holders.values()) or [self._first_roots]
        shared = set(first).intersection(*others)
        return tuple(root for root in first if root in shared)

    def hold(self, holder: object, roots: tuple[Path, ...]) -> None:
        self._holders[holder] = roots
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def release(self, holder: object) -> None:
        """Let go of the server. It is closed a while later, unless someone holds it again by then."""
        self._holders.pop(holder, None)
        if not self._holders and self._closing is None and (self._connection or self._starting):
            linger = self._options.linger_seconds
            if self.config.inline and holder is not None:
                # No other run can ever hold it.
                linger = 0.0
            self._closing = asyncio.get_running_loop().call_later(linger, self._close_unused)

    def _close_unused(self) -> None:
        self._closing = None
        if not self._holders:
            self._gone = asyncio.create_task(self.close())

    async def ready(self) -> McpConnection:
        """Return the live connection, started if it must be. Raise CannotStartError."""
        if self._connection is not None and self._connection.live:
            return self._connection
        if self.config.problem is not None:
            raise CannotStartError(self.config.problem)
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"start mcp {self.config.name}")
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    def _started(self, task: asyncio.Task[McpConnection]) -> None:
        self._starting = None
        if not task.cancelled():
            # Everyone who waited has the exception; fetched here, asyncio does not report it as lost.
            task.exception()
        if not self._holders:
            self.release(None)

    async def _start(self) -> McpConnection:
        await self._pause()
        await load_library()
        self.starts += 1
        options = self._options
        log = ErrorLog(self.log_path, options.redact)
        around = ConnectionOptions(
            options.cwd, options.environment, log, lambda: self.roots, self._elicit, self._take_listing
        )
        connection = McpConnection(self.config, around)
        try:
            await connection.open(self.config.start_seconds or options.start_seconds)
        except CannotStartError as error:
            self._failed(str(error))
            raise
        self._connection, self._since, self.problem = connection, time.monotonic(), None
        return connection

    async def _pause(self) -> None:
        old, self._connection = self._connection, None
        if old is not None:
            await old.close()
            if not self.config.restart:
                raise CannotStartError("it has ended, and its configuration says not to start it again")
            if time.monotonic() - self._since < _STEADY_SECONDS:
                self._failed(f"it ended {time.monotonic() - self._since:.1f} s after its start")
            else:
                self._crashes = 0
        wait = self._not_before - time.monotonic()
        if wait > _PATIENCE:
            raise CannotStartError(f"it failed {self._crashes} times ({self.problem}); next attempt in {wait:.0f} s")
        if wait > 0:
            await asyncio.sleep(wait)

    def _failed(self, why: str) -> None:
        self.problem = why
        self._crashes += 1
        pause = min(_FIRST_PAUSE * 2 ** (self._crashes - 1), _LONGEST_PAUSE)
        self._not_before = time.monotonic() + pause

    def _take_listing(self, found: Listing) -> None:
        if self.listing is None or found.tools != self.listing.tools:
            self.version += 1
        self.listing = found
        self._options.memory.keep(self.config.digest, found)

    async def _elicit(self, params: ElicitRequestParams) -> ElicitResult:
        """Ask a person. The protocol does not say for which call a server asks: the newest is assumed."""
        from mcp_types import ElicitResult

        caller = next((each for each in reversed(self._calls) if each.elicit is not None), None)
        if caller is None or caller.elicit is None:
            return ElicitResult(action="decline")
        question = asyncio.create_task(caller.elicit(params))
        caller.questions.add(question)
        try:
            paused = nullcontext() if caller.patience is None else caller.patience.paused()
            # The time a person takes is not the server's.
            with paused:
                await asyncio.wait({question})
            if question.cancelled():
                return ElicitResult(action="cancel")
            return question.result()
        finally:
            question.cancel()

    async def call(self, name: str, arguments: Mapping[str, Any], caller: Caller, tell: Progress) -> CallToolResult:
        """Return the result of a call. Raise CannotStartError, ServerGoneError, ServerError or TimeoutError."""
        self.hold(caller, caller.roots)
        try:
            async with self._slots:
                self._calls.append(caller)
                try:
                    return await self._call(name, arguments, caller, tell)
                finally:
                    self._calls.remove(caller)
                    # Nobody waits for the answer any more.
                    for question in caller.questions:
                        question.cancel()
        finally:
            self.release(caller)

    async def _call(self, name: str, arguments: Mapping[str, Any], caller: Caller, tell: Progress) -> CallToolResult:
        """Make a call. One that is known not to have reached the server is made again, once."""
        limit = self.config.call_seconds
        if limit is None:
            limit = caller.seconds
        for last in (False, True):
            connection = await self.ready()
            caller.patience = Patience(limit)
            try:
                return await connection.call(name, arguments, caller.patience, tell, caller.traceparent)
            except ServerGoneError as gone:
                if gone.sent or last:
                    raise
            except TimeoutError:
                self._doubt = asyncio.create_task(connection.check())
                raise
        raise AssertionError

    async def close(self) -> None:
        """End the connection, even if runs hold it. The next use starts it again."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        starting, connection = self._starting, self._connection
        self._connection = None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting}, timeout=5)
        if connection is not None:
            await connection.close()
        if self._gone is not None and self._gone is not asyncio.current_task():
            await asyncio.wait({self._gone})


class ServerPool:
    """The servers of one event loop."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, tuple[Path, ...] | None], Server] = {}

    def server(self, config: ServerConfig, options: PoolOptions, roots: tuple[Path, ...], owner: str = "") -> Server:
        """Return the server of that configuration, for `owner` alone if one is named. One that asks for
        the folders it may touch is shared only by runs that may touch the same."""
        key = (f"{config.digest}:{options.cwd}:{owner}", None)
        shared = self._servers.get(key)
        if shared is None:
            for other, each in list(self._servers.items()):
                # Nobody will ask again for a server that the file of an ended run brought.
                if each.config.inline and each.idle:
                    del self._servers[other]
            shared = self._servers[key] = Server(config, options, roots)
            shared.listing = options.memory.recall(config.digest)
        if not shared.uses_roots or shared.roots == roots or not shared.held:
            return shared
        own = (key[0], roots)
        if own not in self._servers:
            self._servers[own] = Server(config, options, roots)
            self._servers[own].listing = shared.listing
        return self._servers[own]

    async def close_unused(self) -> None:
        """End at once what nobody holds."""
        await asyncio.gather(*(server.close() for server in self._servers.values() if not server.held))
        for key, server in list(self._servers.items()):
            if not server.held and not server.live:
                del self._servers[key]


_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ServerPool] = weakref.WeakKeyDictionary()


def loop_pool() -> ServerPool:
    """Return the pool that all runs of this event loop share."""
    loop = asyncio.get_running_loop()
    found = _pools.get(loop)
    if found is None:
        found = _pools[loop] = ServerPool()
    return found


async def load_library() -> None:
    """Import the library, which takes a second, outside of the event loop."""
    import sys

    if "mcp.client.client" not in sys.modules:
        await asyncio.to_thread(_import)


def _import() -> None:
    import logging
    from importlib import import_module

    # Without a handler these loggers write to standard error, past every display.
    for name in ("mcp", "client", "httpx2"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    import_module("mcp.client.client")


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60] or "server"
