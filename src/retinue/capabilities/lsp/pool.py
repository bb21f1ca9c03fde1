"""One process per server and root, shared by every run of this process from which rules hide the same files.

A server that cannot be started stays broken until it is restarted by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from retinue.capabilities.lsp.catalog import ServerKind
from retinue.capabilities.lsp.connection import converter
from retinue.capabilities.lsp.protocol import LspError, ServerFailedError
from retinue.capabilities.lsp.session import LspSession, Spawn
from retinue.core.install import install_command
from retinue.tools.shared_server import SharedServer

T = TypeVar("T")
EXTRA = install_command("lsp")


class LanguagePoolOptions(Struct, frozen=True):
    """How a pool works. `search` is the PATH where programs are looked for. `confined` says that
    `spawn` starts them in a sandbox, without which those that run a project's code are refused."""

    kinds: tuple[ServerKind, ...]
    spawn: Spawn
    search: str | None = None
    confined: bool = False
    trusting: bool = False
    """The user lets servers that run a project's code start without a sandbox."""
    seconds: float = 30.0
    start_seconds: float = 30.0
    idle_seconds: float = 300.0


class Slot(SharedServer[LspSession]):
    """One server for one root, whether it runs or not. `hidden` paths look empty to it."""

    def __init__(self, kind: ServerKind, root: Path, habits: LanguagePoolOptions, hidden: tuple[str, ...] = ()) -> None:
        super().__init__(habits.idle_seconds)
        self.kind = kind
        self.root = root
        self.hidden = hidden
        self._habits = habits
        self.broken: str | None = None
        """Why it cannot be started."""

    async def use(self, work: Callable[[LspSession], Awaitable[T]]) -> T:
        """Do `work` with a live session. A server that dies meanwhile is started again and asked once more, which is
        safe because questions change nothing."""
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
        """Start the server without waiting, so that it runs when it is asked."""
        if self.connection is None and self.broken is None:
            waiting = asyncio.ensure_future(self.ready())
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def restart(self) -> LspSession:
        await self.close()
        self.broken, self._crashes, self._not_before = None, 0, 0.0
        return await self.ready()

    async def _connect(self) -> LspSession:
        kind, habits = self.kind, self._habits
        if self.broken is not None:
            raise ServerFailedError(f"{kind.name} cannot be used: {self.broken} It stays off until it is restarted.")
        program = kind.program(habits.search)
        if program is None:
            raise LspError("LSP_SERVER_NOT_FOUND", f"{kind.name} is not installed. Install it: {kind.install}")
        await load_library()
        self.starts += 1
        try:
            running = await habits.spawn(kind, (program, *kind.argv[1:]), self.root, self.hidden)
            return await LspSession.start(kind, self.root, running, habits.start_seconds)
        except LspError as error:
            self.broken = error.message
            raise

    def _too_soon(self, seconds: float) -> Exception:
        return ServerFailedError(f"{self.kind.name} crashed {self._crashes} times; next attempt in {seconds:.0f} s.")


class LanguageServerPool:
    """The servers of one project's runs."""

    def __init__(self, habits: LanguagePoolOptions) -> None:
        self.habits = habits
        self.slots: dict[tuple[str, Path, tuple[str, ...]], Slot] = {}

    def slot(self, kind: ServerKind, root: Path, hidden: tuple[str, ...] = ()) -> Slot:
        """Return the server of a root for runs from which rules hide these paths."""
        found = self.slots.get((kind.name, root, hidden))
        if found is None:
            # Worktrees come and go: forget the slots of folders that are gone.
            self.slots = {key: slot for key, slot in self.slots.items() if slot.connection or key[1].is_dir()}
            found = self.slots[kind.name, root, hidden] = Slot(kind, root, self.habits, hidden)
        return found

    def why_not(self, kind: ServerKind) -> str | None:
        """Return why a server cannot be used here at all; None if it can."""
        if not kind.enabled:
            return "it is disabled in the settings."
        if kind.program(self.habits.search) is None:
            if not kind.install:
                return "it is not installed."
            return f"it is not installed. Install it: {kind.install}"
        if kind.runs_code and not self.habits.confined and not self.habits.trusting:
            return (
                "it may run programs of the project, and nothing here can confine it. "
                "Setting lsp.sandbox to off, in your own settings, starts it all the same."
            )
        return None

    async def close(self) -> None:
        slots = list(self.slots.values())
        self.slots = {}
        await asyncio.gather(*(slot.close() for slot in slots))


async def load_library() -> None:
    """Import the protocol's types off the event loop, because it takes half a second. Raise LspError."""
    try:
        await asyncio.to_thread(converter)
    except ImportError:
        message = f"questions to language servers need the optional part 'lsp'. Install it: {EXTRA}"
        raise LspError("LSP_SERVER_NOT_FOUND", message) from None
