"""A session with one server in one root: its capabilities, its open files, and its diagnostics.

Answers are validated against the protocol's types here, so other modules get typed answers only.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from retinue.capabilities.lsp.catalog import FileVersion, Inventory, ServerKind
from retinue.capabilities.lsp.connection import LspConnection, RefusedError, WatchedServer
from retinue.capabilities.lsp.protocol import PROVIDERS, Encoding, answer_request, initialize_parameters
from retinue.capabilities.lsp.tool import LspError, ServerFailedError
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from lsprotocol import types


MAX_OPEN_FILES = 16
MAX_INLINE_ENTRIES = 2_000
"""Results with more entries are converted in a thread."""
QUIET_SECONDS = 0.3
"""The silence after which a server that pushes diagnostics is assumed to have sent all."""
_REPEATED_ERRORS = frozenset({-32801, -32802, -32800})
"""Errors after which a request is repeated: content modified, server cancelled, request cancelled."""
_LOADING_REQUESTS = frozenset({"textDocument/diagnostic", "workspace/diagnostic"})
"""Requests during which servers read files and report progress, which does not make the answer incomplete."""
_MAX_REQUEST_ATTEMPTS = 4
_SHUTDOWN_SECONDS = 2.0
_READING_WAIT_SECONDS = 10.0
"""The wait for a better answer while a server is still reading the project."""


class UnsupportedError(Exception):
    """The server does not offer this."""


class SourceFile(Struct, frozen=True):
    """The content of a file when it was read. `version_mark` distinguishes later versions."""

    path: Path
    text: str
    version_mark: FileVersion


@cache
def converter() -> Any:
    """Return the converter of the protocol's types. The first call takes half a second: make it off the event loop."""
    from lsprotocol.converters import get_converter

    return get_converter()


class LspSession:
    """A running server. `start` makes a session; `close` ends the program."""

    def __init__(self, kind: ServerKind, root: Path, server: WatchedServer) -> None:
        self.kind = kind
        self.root = root
        self._connection = LspConnection(server, self._answer, self._on_notification)
        self._inventory = Inventory(kind, root)
        self._syncing = asyncio.Lock()
        self._open: OrderedDict[Path, tuple[FileVersion, int]] = OrderedDict()
        self._versions = 0
        self._progress: set[str] = set()
        self._quiescent = True
        self._load_count = 0
        """The number of times that it began to load something."""
        self._registered: dict[str, Any] = {}
        self._pushed: dict[str, list[types.Diagnostic]] = {}
        self._message_received = asyncio.Event()
        self._capabilities: Mapping[str, Any] = {}
        """Unparsed, because the library does not know all capabilities."""
        self.encoding: Encoding = "utf-16"

    @classmethod
    async def start(cls, kind: ServerKind, root: Path, server: WatchedServer, seconds: float) -> LspSession:
        """Start a session. Raise ServerFailedError or LspError, after the server has been ended."""
        self = cls(kind, root, server)
        try:
            # In a large project the first scan takes seconds, like the start of the server: both run at once.
            looking = asyncio.create_task(in_thread(self._inventory.scan))
            result = await self._connection.request("initialize", initialize_parameters(kind, root), seconds)
            capabilities = result.get("capabilities") if isinstance(result, Mapping) else None
            if not isinstance(capabilities, Mapping):
                raise ServerFailedError("the language server sent no capabilities.")
            self._capabilities = capabilities
            encoding = capabilities.get("positionEncoding")
            self.encoding = encoding if encoding in ("utf-8", "utf-32") else "utf-16"
            await self._connection.notify("initialized", {})
            await self._connection.notify("workspace/didChangeConfiguration", {"settings": dict(kind.settings)})
            await looking
        except RefusedError as error:
            await self.close()
            raise ServerFailedError(f"{kind.name} refused to start: {error}") from None
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def live(self) -> bool:
        return self._connection.why_gone is None

    @property
    def pid(self) -> int:
        return self._connection.server.process.pid

    @property
    def busy(self) -> bool:
        """Whether the server reports that it is still reading the project."""
        return bool(self._progress) or not self._quiescent

    @property
    def sources(self) -> list[Path]:
        return self._inventory.sources()

    async def close(self) -> None:
        """Ask the server to end, then end it by force. Bounded in time."""
        if self.live and self._capabilities:
            with suppress(LspError, RefusedError):
                await self._connection.request("shutdown", None, _SHUTDOWN_SECONDS)
                await self._connection.notify("exit")
        await asyncio.shield(asyncio.ensure_future(self._connection.close()))

    # Notifications to the server

    async def sync(self) -> None:
        """Report the changes on the disk since the last question."""
        async with self._syncing:
            changes = await in_thread(self._inventory.scan)
            for path, (version_mark, _) in list(self._open.items()):
                try:
                    entry = path.stat()
                    changed = (entry.st_mtime_ns, entry.st_size) != version_mark
                except OSError:
                    changed = True
                if changed:
                    await self._close_file(path)
            if changes:
                events = [{"uri": path.as_uri(), "type": how} for path, how in changes]
                await self._connection.notify("workspace/didChangeWatchedFiles", {"changes": events})

    async def open(self, source: SourceFile) -> str:
        """Open the file with exactly this text. Return its URI."""
        uri = source.path.as_uri()
        async with self._syncing:
            if source.path in self._open:
                if self._open[source.path][0] == source.version_mark:
                    self._open.move_to_end(source.path)
                    return uri
                await self._close_file(source.path)
            # The dictionary is ordered by use: its first entry was used least recently.
            while len(self._open) >= MAX_OPEN_FILES:
                await self._close_file(next(iter(self._open)))
            self._versions += 1
            self._pushed.pop(str(source.path), None)
            self._open[source.path] = (source.version_mark, self._versions)
            document = {
                "uri": uri,
                "languageId": self.kind.language(source.path),
                "version": self._versions,
                "text": source.text,
            }
            await self._connection.notify("textDocument/didOpen", {"textDocument": document})
        return uri

    async def _close_file(self, path: Path) -> None:
        self._open.pop(path, None)
        self._pushed.pop(str(path), None)
        await self._connection.notify("textDocument/didClose", {"textDocument": {"uri": path.as_uri()}})

    # Requests to the server

    def offers(self, method: str) -> bool:
        if method in self._registered:
            return True
        name = PROVIDERS.get(method)
        return name is None or self._capabilities.get(name) not in (None, False)

    @property
    def looks_at_workspaces(self) -> bool:
        """Whether the server has diagnostics of a whole workspace."""
        static = self._capabilities.get("diagnosticProvider")
        provider = self._registered.get("textDocument/diagnostic") or static
        return isinstance(provider, Mapping) and provider.get("workspaceDiagnostics") is True

    async def ask(self, method: str, params: Any, seconds: float) -> Any:
        """Return the answer. Raise UnsupportedError, LspError, RefusedError.

        The answer of a server that is still reading the project may be incomplete: it is asked again when it is ready,
        if the time allows."""
        if not self.offers(method):
            raise UnsupportedError(method)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        reading, loads = self.busy, self._load_count
        answer = await self._request(method, params, seconds)
        if method in _LOADING_REQUESTS:
            return answer
        if reading or self.busy or self._load_count != loads:
            remaining = give_up - loop.time()
            # With an answer that may be incomplete, the wait is shorter than without one.
            if answer:
                remaining = min(remaining, _READING_WAIT_SECONDS)
            if await self._wait_until_read(remaining) and give_up > loop.time():
                answer = await self._request(method, params, max(give_up - loop.time(), 0.1))
        return answer

    async def _request(self, method: str, params: Any, seconds: float) -> Any:
        for attempt in range(1, _MAX_REQUEST_ATTEMPTS + 1):
            try:
                result = await self._connection.request(method, params, seconds)
                if isinstance(result, list) and len(result) > MAX_INLINE_ENTRIES:
                    return await asyncio.to_thread(_structure, method, result)
                return _structure(method, result)
            except RefusedError as error:
                if error.code not in _REPEATED_ERRORS or attempt == _MAX_REQUEST_ATTEMPTS:
                    raise
                await asyncio.sleep(0.1 * attempt)
        raise AssertionError

    async def _wait_until_read(self, seconds: float) -> bool:
        """Wait at most `seconds` until the server has read the project. Return whether it has."""
        return await self._wait_for(lambda: not self.busy, seconds)

    async def diagnostics(self, source: SourceFile, seconds: float) -> list[types.Diagnostic] | None:
        """Return the diagnostics of a file; None when the server has not sent them in time."""
        uri = await self.open(source)
        if self.offers("textDocument/diagnostic"):
            try:
                report = await self.ask("textDocument/diagnostic", {"textDocument": {"uri": uri}}, seconds)
            except LspError as error:
                if error.code != "LSP_TIMEOUT":
                    raise
                return None
            return list(getattr(report, "items", None) or ())
        return await self._pushed_for(str(source.path), seconds)

    async def _pushed_for(self, path: str, seconds: float) -> list[types.Diagnostic] | None:
        give_up = asyncio.get_running_loop().time() + seconds
        if not await self._wait_for(lambda: path in self._pushed, seconds):
            return None
        if self.busy:
            await self._wait_until_read(give_up - asyncio.get_running_loop().time())
        newest = None
        # Some servers send quick results first and others later.
        while self._pushed.get(path) is not newest:
            newest = self._pushed.get(path)
            remaining = give_up - asyncio.get_running_loop().time()
            await self._wait_for(lambda: self._pushed.get(path) is not newest, min(QUIET_SECONDS, remaining))  # noqa: B023
        return newest

    async def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                while not condition():
                    if not self.live:
                        raise self._connection.gone()
                    await self._message_received.wait()
        except TimeoutError:
            return condition()
        return True

    # Messages of the server

    def _answer(self, method: str, params: Any) -> Any:
        if method == "client/registerCapability" and isinstance(params, Mapping):
            for registration in params.get("registrations") or ():
                if isinstance(registration, Mapping):
                    self._registered[str(registration.get("method"))] = registration.get("registerOptions")
            return None
        return answer_request(method, params, self.kind, self.root)

    def _on_notification(self, method: str, params: Any) -> None:
        if not isinstance(params, Mapping):
            return
        match method:
            case "textDocument/publishDiagnostics":
                from lsprotocol import types

                try:
                    report = converter().structure(params, types.PublishDiagnosticsParams)
                except Exception:  # noqa: BLE001 - cattrs raises groups of anything
                    return
                path, version = path_of(report.uri), report.version
                # These may be for an older text.
                if path is None or (version is not None and path in self._open and version < self._open[path][1]):
                    return
                self._pushed[str(path)] = list(report.diagnostics)
            case "$/progress":
                token, value = str(params.get("token")), params.get("value")
                step = value.get("kind") if isinstance(value, Mapping) else None
                if step == "begin":
                    self._load_count += 1
                    self._progress.add(token)
                elif step == "end":
                    self._progress.discard(token)
            case "experimental/serverStatus":
                self._quiescent = params.get("quiescent") is not False
            case "$/gone":
                pass
            case _:
                return
        # A new event each time: setting and clearing the same one could lose a waiter.
        self._message_received.set()
        self._message_received = asyncio.Event()


def _structure(method: str, result: Any) -> Any:
    """Return an answer as the protocol's type. Raise ServerFailedError for another shape."""
    from lsprotocol.types import METHOD_TO_TYPES

    try:
        return converter().structure({"jsonrpc": "2.0", "id": 0, "result": result}, METHOD_TO_TYPES[method][1]).result
    except Exception as error:  # cattrs raises groups of anything
        raise ServerFailedError(f"the language server's answer to {method} violates the protocol.") from error


def path_of(uri: str) -> Path | None:
    """Return the file that a URI names; None for a URI that names no file."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    text = unquote(parts.path)
    if os.name == "nt" and text.startswith("/"):
        text = text[1:]
    if "\0" in text:
        return None
    return Path(os.path.normpath(text))
