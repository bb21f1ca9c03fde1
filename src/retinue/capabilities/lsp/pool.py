"""One process per server and root, shared by every run of this process from which rules hide the same files.

Questions that come while a server starts wait for the same start. A server that cannot be started stays broken until
it is restarted by hand; a server that crashes at work is started again by the next question, after longer and longer
pauses if it keeps crashing. A server that is not used for a while is ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from retinue.capabilities.lsp.catalog import ServerKind
from retinue.capabilities.lsp.protocol import LspError, ServerFailedError
from retinue.capabilities.lsp.session import LspSession, Spawn
from retinue.core.install import install_command

T = TypeVar("T")
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_PATIENCE = 3.0
"""Seconds. A pause of at most this length is waited for; a longer one is an error that says when."""
_STEADY_SECONDS = 30.0
"""A server that lived this long has not crashed at its start."""
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


class Slot:
    """One server for one root, whether it runs or not. `hidden` paths look empty to it."""

    def __init__(self, kind: ServerKind, root: Path, habits: LanguagePoolOptions, hidden: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.root = root
        self.hidden = hidden
        self._habits = habits
        self._session: LspSession | None = None
        self._starting: asyncio.Task[LspSession] | None = None
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._crashes = 0
        self._since = 0.0
        self._not_before = 0.0
        self.starts = 0
        self.broken: str | None = None
        """Why it cannot be started."""

    @property
    def session(self) -> LspSession | None:
        return self._session if self._session is not None and self._session.live else None

    @property
    def ready(self) -> bool:
        return self.session is not None

    async def use(self, work: Callable[[LspSession], Awaitable[T]]) -> T:
        """Do `work` with a live session. A server that dies meanwhile is started again and asked once more, which is
        safe because questions change nothing."""
        with self._count_use():
            session = await self.started()
            try:
                return await work(session)
            except ServerFailedError:
                if session.live:
                    raise
                return await work(await self.started())

    async def started(self) -> LspSession:
        """Return the live session, started if necessary. Raise LspError."""
        if (session := self.session) is not None:
            return session
        if self.broken is not None:
            raise ServerFailedError(
                f"{self.kind.name} cannot be used: {self.broken} It stays off until it is restarted."
            )
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"start {self.kind.name}")
            self._starting.add_done_callback(self._forget_start)
        # Others may wait for the same start, so a caller that is cancelled must not end it.
        return await asyncio.shield(self._starting)

    def begin(self) -> None:
        """Start the server without waiting, so that it runs when it is asked."""
        if not self.ready and self.broken is None:
            waiting = asyncio.ensure_future(self.started())
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            # Begins the idle clock, or a server that is never asked would never end.
            with self._count_use():
                pass

    async def close(self) -> None:
        """End the server, or the start that is under way."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        starting, session = self._starting, self._session
        self._starting = self._session = None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
        if session is not None:
            await session.close()
        # The idle clock closes the slot from a task of its own, which cannot wait for itself.
        if others := self._ending - {asyncio.current_task()}:
            await asyncio.wait(others)

    async def restart(self) -> LspSession:
        await self.close()
        self.broken, self._crashes, self._not_before = None, 0, 0.0
        with self._count_use():
            return await self.started()

    def _forget_start(self, task: asyncio.Task[LspSession]) -> None:
        if self._starting is task:
            self._starting = None
        # All that waited have the exception; asyncio would report it if nobody did.
        if not task.cancelled():
            task.exception()

    async def _start(self) -> LspSession:
        await self._pause()
        kind, habits = self.kind, self._habits
        program = kind.program(habits.search)
        if program is None:
            raise LspError("LSP_SERVER_NOT_FOUND", f"{kind.name} is not installed. Install it: {kind.install}")
        await load_library()
        self.starts += 1
        try:
            running = await habits.spawn(kind, (program, *kind.argv[1:]), self.root, self.hidden)
            session = await LspSession.start(kind, self.root, running, habits.start_seconds)
        except LspError as error:
            self.broken = str(error).partition(": ")[2]
            raise
        self._session, self._since = session, time.monotonic()
        return session

    async def _pause(self) -> None:
        old, self._session = self._session, None
        if old is not None:
            await old.close()
            if time.monotonic() - self._since < _STEADY_SECONDS:
                self._crashes += 1
                pause = min(_FIRST_PAUSE * 2 ** (self._crashes - 1), _LONGEST_PAUSE)
                self._not_before = time.monotonic() + pause
            else:
                self._crashes = 0
        wait = self._not_before - time.monotonic()
        if wait > _PATIENCE:
            raise ServerFailedError(f"{self.kind.name} crashed {self._crashes} times; next attempt in {wait:.0f} s.")
        if wait > 0:
            await asyncio.sleep(wait)

    @contextmanager
    def _count_use(self) -> Iterator[None]:
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and self._idle is None:
                self._idle = asyncio.get_running_loop().call_later(self._habits.idle_seconds, self._rest)

    def _rest(self) -> None:
        self._idle = None
        if not self._users:
            ending = asyncio.create_task(self.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


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
            self.slots = {key: slot for key, slot in self.slots.items() if slot.ready or key[1].is_dir()}
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
        from retinue.capabilities.lsp.connection import converter

        await asyncio.to_thread(converter)
    except ImportError:
        message = f"questions to language servers need the optional part 'lsp'. Install it: {EXTRA}"
        raise LspError("LSP_SERVER_NOT_FOUND", message) from None
