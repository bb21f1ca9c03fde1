"""The pool of language servers: one process per server and root, shared by runs with the same hidden files.

The pool chooses a server for a question, shows the state of all servers, and restarts them. A server that cannot be
started stays broken until it is restarted by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from retinue.capabilities.lsp.catalog import ServerKind, find_projects, for_file, root_of
from retinue.capabilities.lsp.connection import WatchedServer
from retinue.capabilities.lsp.session import LspSession, converter
from retinue.capabilities.lsp.tool import LspError, LspQuestion, ServerFailedError
from retinue.core.install import install_command
from retinue.core.tool import ToolContext
from retinue.tools.paths import shown
from retinue.tools.processes import in_thread
from retinue.tools.shared_server import SharedServer

Result = TypeVar("Result")
Spawn = Callable[[ServerKind, tuple[str, ...], Path, tuple[str, ...]], Awaitable[WatchedServer]]
"""Starts a server's program in a root, with some paths hidden (empty for it). Raises ServerFailedError."""


class ServerSlot(SharedServer[LspSession]):
    """One server for one root, running or not. `hidden` paths are empty for it."""

    def __init__(self, kind: ServerKind, root: Path, pool: LanguageServerPool, hidden: tuple[str, ...]) -> None:
        super().__init__(pool.idle_seconds)
        self.kind = kind
        self.root = root
        self.hidden = hidden
        self._pool = pool
        self.broken: str | None = None
        """Why it cannot be started."""

    async def use(self, work: Callable[[LspSession], Awaitable[Result]]) -> Result:
        """Do `work` with a live session. If the server dies meanwhile, it is started again and the work is repeated
        once, which is safe because questions change nothing."""
        holder = object()
        self.hold(holder)
        try:
            session = await self.ready()
            try:
                return await work(session)
            except ServerFailedError:
                if session.live:
                    raise
                return await work(await self.ready())
        finally:
            self.release(holder)

    def begin(self) -> None:
        """Start the server without waiting, so that it is running for the next question."""
        if self.connection is None and self.broken is None:
            waiting = asyncio.ensure_future(self.ready())
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def restart(self) -> LspSession:
        await self.close()
        self.broken, self._crashes, self._not_before = None, 0, 0.0
        return await self.ready()

    async def _connect(self) -> LspSession:
        kind, pool = self.kind, self._pool
        if self.broken is not None:
            raise ServerFailedError(f"{kind.name} cannot be used: {self.broken} It stays off until it is restarted.")
        program = kind.program(pool.search)
        if program is None:
            raise _not_found(f"{kind.name} is not installed. Install it: {kind.how_to_install}")
        try:
            # The protocol's types take half a second to import.
            await asyncio.to_thread(converter)
        except ImportError:
            advice = f"Install it: {install_command('lsp')}"
            raise _not_found(f"questions to language servers need the optional part 'lsp'. {advice}") from None
        self.starts += 1
        try:
            server = await pool.spawn(kind, (program, *kind.argv[1:]), self.root, self.hidden)
            return await LspSession.start(kind, self.root, server, pool.start_seconds)
        except LspError as error:
            self.broken = error.message
            raise

    def _too_soon(self, seconds: float) -> Exception:
        return ServerFailedError(f"{self.kind.name} crashed {self._crashes} times; next attempt in {seconds:.0f} s.")


class LanguageServerPool(Struct, eq=False):
    """The servers of one project. `search` is the PATH for their programs. `confined`: `spawn` starts servers in a
    sandbox. Without it, servers that run code of the project are refused, unless the user is `trusting`."""

    kinds: tuple[ServerKind, ...]
    spawn: Spawn
    search: str | None
    confined: bool
    trusting: bool
    seconds: float
    start_seconds: float
    idle_seconds: float
    slots: dict[tuple[str, Path, tuple[str, ...]], ServerSlot] = field(default_factory=dict)

    async def close(self) -> None:
        slots = list(self.slots.values())
        self.slots = {}
        await asyncio.gather(*(slot.close() for slot in slots))

    # The choice of a server

    def slot_for(self, path: Path, workspace: Path, server: str | None, hidden: tuple[str, ...]) -> ServerSlot:
        """Return the server of a file: the named one, or the first that is installed and works. It does not see the
        `hidden` paths."""
        kinds = for_file(self.kinds, path) if server is None else [self._named(server)]
        files = f"{path.suffix or path.name} files"
        if not kinds:
            advice = "Read the file instead; one can be added in the setting lsp.servers."
            raise _not_found(f"no language server is known for {files}. {advice}")
        working = [kind for kind in kinds if self._why_not(kind) is None]
        usable = [self._slot(kind, root_of(kind, path, workspace), hidden) for kind in working]
        if not usable:
            raise _not_found(f"no language server for {files} can be used. {self._reasons(kinds)}")
        # If all are broken, one is returned, so that the answer is its error.
        return next((slot for slot in usable if slot.broken is None), usable[0])

    def slots_in(self, workspace: Path, server: str | None, hidden: tuple[str, ...]) -> list[ServerSlot]:
        """Return the servers for the files of a workspace, one for each language and project. They do not see the
        `hidden` paths."""
        kinds = self.kinds if server is None else (self._named(server),)
        usable = [kind for kind in kinds if self._why_not(kind) is None]
        slots = [self._slot(kind, root, hidden) for kind, root in find_projects(_first_per_language(usable), workspace)]
        if slots:
            return slots
        missing = [kind for kind, _ in find_projects(_first_per_language(kinds), workspace)]
        if missing:
            raise _not_found(f"no language server for the files here can be used. {self._reasons(missing)}")
        python = f"For Python: {install_command('lsp')}"
        raise _not_found(f"there are no files here for which a language server is known. {python}")

    def _slot(self, kind: ServerKind, root: Path, hidden: tuple[str, ...]) -> ServerSlot:
        """Return the server of a root for runs from which rules hide these paths."""
        key = (kind.name, root, hidden)
        if key not in self.slots:
            # Worktrees are short-lived: drop the slots of deleted folders.
            self.slots = {key: slot for key, slot in self.slots.items() if slot.connection or key[1].is_dir()}
            self.slots[key] = ServerSlot(kind, root, self, hidden)
        return self.slots[key]

    def _why_not(self, kind: ServerKind) -> str | None:
        """Return why a server cannot be used here; None if it can."""
        if not kind.enabled:
            return "it is disabled in the settings."
        if kind.program(self.search) is None:
            advice = kind.how_to_install
            return f"it is not installed. Install it: {advice}" if advice else "it is not installed."
        if kind.runs_code and not self.confined and not self.trusting:
            return (
                "it may run programs of the project, and nothing here can confine it. "
                "Setting lsp.sandbox to off, in your own settings, starts it anyway."
            )
        return None

    def _reasons(self, kinds: Sequence[ServerKind]) -> str:
        return "; ".join(f"{kind.name}: {self._why_not(kind)}" for kind in kinds)

    def _named(self, name: str) -> ServerKind:
        kind = next((kind for kind in self.kinds if kind.name.lower() == name.strip().lower()), None)
        if kind is None:
            names = ", ".join(kind.name for kind in self.kinds)
            raise _not_found(f"no language server is called {name[:40]!r}. There are: {names}.")
        return kind

    # State and restart

    async def status(self, question: LspQuestion, context: ToolContext) -> str:
        """Return one line for each known server: running, failed, installed, or the command to install it."""
        lines = []
        for kind in self.kinds:
            if question.server and kind.name.lower() != question.server.lower():
                continue
            states = []
            for slot in self.slots.values():
                if slot.kind.name == kind.name and (slot.connection or slot.broken):
                    states.append(f"{_state(slot)} in {shown(slot.root, context)}")
            why_not = await in_thread(partial(self._why_not, kind))
            if not states:
                states = [why_not or "installed, not started yet"]
            lines.append(f"{kind.name} ({' '.join(sorted(kind.languages))}): {'; '.join(states)}")
        return "\n".join(lines) or f"No language server is called {question.server!r}."

    async def restart(self, question: LspQuestion, context: ToolContext) -> str:
        """Restart servers: the named one, those of the file, or all that were started."""
        slots: list[ServerSlot] = []
        for slot in self.slots.values():
            named = question.server is None or slot.kind.name.lower() == question.server.lower()
            if named and (question.file is None or slot.kind.handles(question.file.path.name)):
                slots.append(slot)
        if not slots:
            slots = await in_thread(lambda: self.slots_in(context.root, question.server, hidden_from(context)))
        lines = []
        for slot in slots:
            try:
                state = f"running, process {(await slot.restart()).pid}"
            except LspError as error:
                state = str(error)
            lines.append(f"{slot.kind.name} in {shown(slot.root, context)}: {state}")
        return "\n".join(lines)


def hidden_from(context: ToolContext) -> tuple[str, ...]:
    """Return the paths that rules hide from a run, and therefore from its servers. Raise LspError. It may take a while
    in a large workspace."""
    try:
        return () if context.confine is None else context.confine.hidden()
    except OSError as error:
        raise _not_found(f"no language server can be used. {error}") from None


def _not_found(message: str) -> LspError:
    return LspError("LSP_SERVER_NOT_FOUND", message)


def _first_per_language(kinds: Sequence[ServerKind]) -> list[ServerKind]:
    """Return one server, the first, for each set of languages."""
    first: dict[frozenset[str], ServerKind] = {}
    for kind in kinds:
        if kind.enabled:
            first.setdefault(frozenset(kind.languages), kind)
    return list(first.values())


def _state(slot: ServerSlot) -> str:
    session = slot.connection
    if session is None:
        return f"failed ({slot.broken})"
    doing = "still reading the project" if session.busy else "ready"
    return f"running, process {session.pid}, {doing}"
