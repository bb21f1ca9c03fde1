"""One connection to one server, from the handshake to its end.

The library's contexts must be left by the task that entered them, so each connection has its own task (`_keep_open`);
calls come from any other task. The same code ends the process when the server dies, when it is stopped and when the
task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from retinue.capabilities.mcp.config import ServerConfig
from retinue.capabilities.mcp.tool_list import Listing, ListingCache, listing, repair_tools
from retinue.capabilities.mcp.transport import find_program, http_streams, program_streams, repaired, server_environment
from retinue.core.programs import prepare
from retinue.core.version import __version__
from retinue.tools.processes import CannotStartError, ErrorLog, ServerProcess

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import ClientRequestContext, IncomingMessage
    from mcp_types import (
        CallToolResult,
        ElicitRequestParams,
        ElicitResult,
        ErrorData,
        ListRootsResult,
        RequestParamsMeta,
    )


class Patience:
    """The time that a call waits for a sign of life. After that, TimeoutError is raised inside of `timeout`."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.timeout = asyncio.timeout(seconds)
        self._pauses = 0

    def restart(self) -> None:
        """Restart the time, after a sign of life."""
        if self.seconds is not None and not self._pauses:
            self._reschedule(asyncio.get_running_loop().time() + self.seconds)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._pauses += 1
        self._reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            self.restart()

    def _reschedule(self, when: float | None) -> None:
        # The call may have ended already.
        with suppress(RuntimeError):
            self.timeout.reschedule(when)


_MAX_LIST_PAGES = 100
_CLOSE_SECONDS = 4.0
_PING_SECONDS = 5.0
Progress = Callable[[str], None]
Elicit = Callable[["ElicitRequestParams"], Awaitable["ElicitResult"]]


class ServerGoneError(Exception):
    """The connection ended during or before a call. `sent`: the server may have received it."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class ServerError(Exception):
    """The server answered with a protocol error."""


class PoolOptions(Struct, frozen=True):
    """The folders, environment and timeouts of a pool."""

    cwd: Path
    environment: Mapping[str, str]
    logs: Path
    memory: ListingCache
    redact: Callable[[str], str] = str
    start_seconds: float = 10.0
    linger_seconds: float = 30.0


class McpConnection:
    """`open` it once. `listing` is the newest list of its tools, and `changed` is called with each new one. `roots`
    returns the folders that the server may know."""

    def __init__(
        self,
        config: ServerConfig,
        options: PoolOptions,
        log: ErrorLog,
        *,
        roots: Callable[[], tuple[Path, ...]],
        elicit: Elicit,
        changed: Callable[[Listing], None],
    ) -> None:
        self.config = config
        self._options = options
        self._log = log
        self._list_folders = roots
        self._ask_person = elicit
        self._changed = changed
        self._client: Client | None = None
        self._process: ServerProcess | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._relist_planned = False
        self._left_out: list[str] = []
        """The problems of tools that are not in the newest list."""
        self.uses_roots = False
        self.listing = Listing(())

    @property
    def live(self) -> bool:
        return self._client is not None and not self._over.is_set()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def open(self, seconds: float) -> None:
        """Connect. Raise CannotStartError if the server is not ready in time; it is ended then."""
        self._task = asyncio.create_task(self._keep_open(), name=f"mcp {self.config.name}")
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self.close()
            raise CannotStartError(f"it did not answer within {seconds:g} s{self._last_output()}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection and its process; bounded in time."""
        self._over.set()
        task = self._task
        if task is None or task.done():
            return
        if not self._opened.done():
            # During the handshake `_over` is not awaited.
            task.cancel()
        done, _ = await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        if not done:
            self.cut()
            task.cancel()
            await asyncio.wait({task}, timeout=_CLOSE_SECONDS)

    def cut(self) -> None:
        """Let the launcher end the process, without waiting."""
        self._over.set()
        if self._process is not None:
            self._process.cut()

    async def call(
        self, name: str, arguments: Mapping[str, Any], patience: Patience, tell: Progress, traceparent: str = ""
    ) -> CallToolResult:
        """Return the result. Raise ServerGoneError, ServerError or TimeoutError. A cancelled call is cancelled at the
        server."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST
        from pydantic import ValidationError

        client = self._client
        if client is None or self._over.is_set():
            raise ServerGoneError(self._why_gone(), sent=False)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            patience.restart()
            share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            tell(f"{share} {message or ''}".strip() + "\n")

        meta: RequestParamsMeta | None = None
        if traceparent:
            # The type has only some of the keys that the protocol reserves.
            meta = cast("RequestParamsMeta", {"traceparent": traceparent})
        try:
            async with patience.timeout:
                return await client.call_tool(name, dict(arguments), progress_callback=on_progress, meta=meta)
        except TimeoutError:
            # A subclass of OSError, which is handled below.
            raise
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self._over.set()
                raise ServerGoneError(self._why_gone()) from error
            if error.code == INVALID_REQUEST and error.message == "Session terminated":
                self._over.set()
                raise ServerGoneError("it has forgotten this session", sent=False) from error
            raise ServerError(f"{error.message} (code {error.code})") from error
        except ValidationError as error:
            raise ServerError(f"its answer does not follow the protocol ({error.error_count()} problems)") from error
        except RuntimeError as error:
            raise ServerError(str(error)) from error
        except OSError as error:
            self._over.set()
            raise ServerGoneError(f"the connection failed: {error}") from error

    async def check(self) -> None:
        """Ping the server after a call that took too long. If it does not answer, the connection is closed, and the
        next call opens a new one."""
        from mcp_types import EmptyResult, PingRequest

        if self._client is None or self._client.session.initialize_result is None:
            return
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await self._client.session.send_request(PingRequest(), EmptyResult)
        except Exception:  # noqa: BLE001 - any failure means that it does not answer
            self._log.note("[retinue] it does not answer a ping: the connection is closed")
            await self.close()

    # The connection's own task

    async def _keep_open(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await self._connect(stack)
                self.listing = await self._list(client)
                self._client = client
                if not self._opened.done():
                    self._opened.set_result(None)
                self._changed(self.listing)
                await self._over.wait()
        except asyncio.CancelledError:
            self._fail("it was given up")
            raise
        except BaseException as error:
            self._fail(f"{_reason(error)}{self._last_output()}")
            if not isinstance(error, Exception):
                raise
        finally:
            self._client = None
            self._over.set()

    def _fail(self, why: str) -> None:
        """Report a start that has failed, unless the connection was open already."""
        if not self._opened.done():
            self._opened.set_exception(CannotStartError(why))
            # If no caller waits, asyncio would report an exception that was never retrieved.
            self._opened.exception()

    async def _connect(self, stack: AsyncExitStack) -> Client:
        """Use the handshake that every server knows; then the newest one, for a server that knows only that."""
        try:
            return await self._shake_hands(stack, "legacy")
        except Exception as error:
            if not _is_newer(error):
                raise
        return await self._shake_hands(stack, "auto")

    async def _shake_hands(self, outer: AsyncExitStack, mode: str) -> Client:
        from mcp import Client
        from mcp_types import Implementation

        async with AsyncExitStack() as stack:
            client = Client(
                await self._transport(stack),
                mode=mode,
                client_info=Implementation(name="retinue", version=__version__),
                list_roots_callback=self._roots,
                elicitation_callback=self._elicit,
                logging_callback=self._on_log_message,
                message_handler=self._on_notification,
                cache=None,
            )
            await stack.enter_async_context(client)
            outer.push_async_exit(stack.pop_all())
        return client

    async def _transport(self, stack: AsyncExitStack) -> Any:
        repair = partial(repair_tools, left_out=self._left_out)
        if self.config.transport != "stdio":
            return repaired(http_streams(self.config, self._log), repair)
        options = self._options
        program, folder = find_program(self.config, options.cwd, options.environment)
        environment = server_environment(options.environment, self.config)
        server = prepare(
            [program, *self.config.args],
            # `servers.py` starts no server of a project before the user has consented to its file.
            clearance="person" if self.config.provenance == "person" else "consent",
            environment=environment,
            cwd=folder,
        )
        self._process = await ServerProcess.launch(server, self._log)
        stack.push_async_callback(self._process.end)
        return repaired(program_streams(self._process, self._log, self._over.set), repair)

    async def _list(self, client: Client) -> Listing:
        """Return all pages of its tools; an empty list for a server without tools."""
        tools: list[Any] = []
        self._left_out.clear()
        if client.server_capabilities.tools is not None:
            cursor: str | None = None
            for _ in range(_MAX_LIST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    break
        return listing(tools, uses_roots=self.uses_roots, left_out=self._left_out)

    # Requests and notifications of the server

    async def _on_notification(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification) and not self._relist_planned:
            self._relist_planned = True
            asyncio.get_running_loop().call_later(0.05, self._relist)

    def _relist(self) -> None:
        """List the tools again, once for several notifications, in a separate task: the reader must not wait."""
        self._relist_planned = False
        if self.live:
            task = asyncio.create_task(self._list_again())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _list_again(self) -> None:
        if self._client is not None:
            # If the new list cannot be read, the old one stays valid.
            with suppress(Exception):
                async with asyncio.timeout(30):
                    self.listing = await self._list(self._client)
                self._changed(self.listing)

    async def _roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        from mcp_types import ListRootsResult, Root

        self.uses_roots = True
        folders = self._list_folders()
        return ListRootsResult(roots=[Root(uri=folder.as_uri(), name=folder.name) for folder in folders])  # type: ignore[arg-type]  # pydantic reads the text

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        return await self._ask_person(params)

    async def _on_log_message(self, params: Any) -> None:
        self._log.note(f"{params.level}: {str(params.data)[:2_000]}", "[log] ")

    def _why_gone(self) -> str:
        code = None if self._process is None else self._process.code
        return f"it has ended{'' if code is None else f' (exit code {code})'}{self._last_output()}"

    def _last_output(self) -> str:
        last = self._log.tail.strip().splitlines()[-3:]
        return f"; it last said: {' | '.join(last)[:400]}" if last else ""


def _reason(error: BaseException) -> str:
    """Return the message of the innermost exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def _is_newer(error: BaseException) -> bool:
    """Return whether a server refused a handshake that it does not know."""
    from mcp import MCPError
    from mcp_types import HEADER_MISMATCH, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_newer, error.exceptions))
    if isinstance(error, MCPError):
        return error.code in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION, HEADER_MISMATCH)
    # What the SDK raises for an answer with a revision that the old handshake cannot agree on.
    return isinstance(error, RuntimeError)
