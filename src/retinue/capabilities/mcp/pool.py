"""One connection per server configuration, shared by all runs of the process, with a limit of concurrent calls."""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from retinue.capabilities.mcp.config import ServerConfig
from retinue.capabilities.mcp.connection import McpConnection, Patience, PoolOptions, Progress, ServerGoneError
from retinue.capabilities.mcp.tool_list import Listing
from retinue.tools.processes import CannotStartError, ErrorLog
from retinue.tools.shared_server import STEADY_SECONDS, SharedServer

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult


class Caller(Struct, eq=False):
    """The run behind a call: its folders, its time limit, and `elicit`, which asks the person behind it (None without
    one)."""

    roots: tuple[Path, ...]
    seconds: float | None = None
    elicit: Callable[[ElicitRequestParams], Coroutine[Any, Any, ElicitResult]] | None = None
    traceparent: str = ""
    """The span that the call belongs to, in a trace."""
    patience: Patience | None = None
    questions: set[asyncio.Task[ElicitResult]] = field(default_factory=set)


class Server(SharedServer[McpConnection]):
    """One configured server, shared by the runs of this process."""

    def __init__(self, config: ServerConfig, options: PoolOptions, roots: tuple[Path, ...]) -> None:
        super().__init__(options.linger_seconds)
        self.config = config
        self._options = options
        self._holders: dict[object, tuple[Path, ...]] = {}
        self._first_roots = roots
        self._slots = asyncio.Semaphore(config.concurrency)
        self._calls: list[Caller] = []
        self._health_check: asyncio.Task[None] | None = None
        self.listing: Listing | None = None
        self.problem: str | None = None
        self.version = 0
        """Incremented whenever the list of tools changes."""

    @property
    def pid(self) -> int | None:
        return self.connection.pid if self.connection is not None else None

    @property
    def log_path(self) -> Path:
        """The file with all output that is not part of the protocol."""
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.config.name)[:60]
        return self._options.logs / f"{name or 'server'}.log"

    @property
    def idle(self) -> bool:
        """Whether it was used, no run holds it, and it is not running."""
        return bool(self.starts) and not (self._holders or self.connection or self._starting)

    @property
    def uses_roots(self) -> bool:
        sources = (self._connection, self.listing)
        return any(source is not None and source.uses_roots for source in sources)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders that every run which holds it may touch."""
        first, *others = list(self._holders.values()) or [self._first_roots]
        shared = set(first).intersection(*others)
        return tuple(root for root in first if root in shared)

    def release(self, holder: object) -> None:
        self._holders.pop(holder, None)
        # A server from an agent's file is never used by another run.
        self._close_later(0.0 if self.config.inline else self._linger_seconds)

    async def _connect(self) -> McpConnection:
        if self.config.problem is not None:
            raise CannotStartError(self.config.problem)
        await load_library()
        self.starts += 1
        options = self._options
        log = ErrorLog(self.log_path, options.redact)
        connection = McpConnection(
            self.config, options, log, roots=lambda: self.roots, elicit=self._elicit, changed=self._take_listing
        )
        try:
            await connection.open(self.config.start_seconds or options.start_seconds)
        except CannotStartError as error:
            self.problem = str(error)
            self._count_crash()
            raise
        self.problem = None
        return connection

    def _ended(self, seconds: float) -> None:
        if not self.config.restart:
            raise CannotStartError("it has ended, and its configuration says not to start it again")
        if seconds < STEADY_SECONDS:
            self.problem = f"it ended {seconds:.1f} s after its start"
        super()._ended(seconds)

    def _too_soon(self, seconds: float) -> Exception:
        return CannotStartError(f"it failed {self._crashes} times ({self.problem}); next attempt in {seconds:.0f} s")

    def _take_listing(self, listing: Listing) -> None:
        if self.listing is None or listing.tools != self.listing.tools:
            self.version += 1
        self.listing = listing
        self._options.memory.keep(self.config.digest, listing)

    async def _elicit(self, params: ElicitRequestParams) -> ElicitResult:
        """Ask a person. The protocol does not name the call that a question belongs to: the newest call is assumed."""
        from mcp_types import ElicitResult

        caller = next((call for call in reversed(self._calls) if call.elicit is not None), None)
        if caller is None or caller.elicit is None:
            return ElicitResult(action="decline")
        question = asyncio.create_task(caller.elicit(params))
        caller.questions.add(question)
        try:
            paused = nullcontext() if caller.patience is None else caller.patience.paused()
            # The time that the person takes does not count as the server's.
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
                    # The call has ended, so its questions are void.
                    for question in caller.questions:
                        question.cancel()
        finally:
            self.release(caller)

    async def _call(self, name: str, arguments: Mapping[str, Any], caller: Caller, tell: Progress) -> CallToolResult:
        """Make a call. If it certainly did not reach the server, it is repeated once."""
        limit = caller.seconds if self.config.call_seconds is None else self.config.call_seconds
        for last in (False, True):
            connection = await self.ready()
            caller.patience = Patience(limit)
            try:
                return await connection.call(name, arguments, caller.patience, tell, caller.traceparent)
            except ServerGoneError as gone:
                if gone.sent or last:
                    raise
            except TimeoutError:
                self._health_check = asyncio.create_task(connection.check())
                raise
        raise AssertionError


class ServerPool:
    """The servers of one event loop."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, tuple[Path, ...] | None], Server] = {}

    def server(self, config: ServerConfig, options: PoolOptions, roots: tuple[Path, ...], owner: str = "") -> Server:
        """Return the server of that configuration, only for `owner` if that is not empty. A server that asks for the
        folders it may touch is shared only by runs with the same folders."""
        key = (f"{config.digest}:{options.cwd}:{owner}", None)
        shared = self._servers.get(key)
        if shared is None:
            for other, server in list(self._servers.items()):
                # A server from the file of an ended run is never asked for again.
                if server.config.inline and server.idle:
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
        """End at once the servers that no run holds."""
        await asyncio.gather(*(server.close() for server in self._servers.values() if not server.held))
        for key, server in list(self._servers.items()):
            if not server.held and server.connection is None:
                del self._servers[key]


_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ServerPool] = weakref.WeakKeyDictionary()


def loop_pool() -> ServerPool:
    """Return the pool that all runs of this event loop share."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        _pools[loop] = ServerPool()
    return _pools[loop]


async def load_library() -> None:
    """Import the library in a thread, because that takes a second."""
    if "mcp.client.client" not in sys.modules:
        await asyncio.to_thread(_import)


def _import() -> None:
    # Without a handler these loggers write to standard error, over the display of the program.
    for name in ("mcp", "client", "httpx2"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    import_module("mcp.client.client")
