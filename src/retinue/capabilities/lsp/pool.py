"""One process per server and root, shared by every run of this process from which rules hide the same files.

A server that cannot be started stays broken until it is restarted by hand.

The choice of a language server for a question, the state of all servers, and their restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from retinue.capabilities.lsp.catalog import ServerKind, find_projects, for_file, root_of
from retinue.capabilities.lsp.connection import converter
from retinue.capabilities.lsp.protocol import LspError, ServerFailedError
from retinue.capabilities.lsp.session import LspSession, Spawn
from retinue.capabilities.lsp.tool import LspQuestion
from retinue.core.install import install_command
from retinue.core.tool import ToolContext
from retinue.tools.paths import shown
from retinue.tools.processes import in_thread
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


def slot_for(
    pool: LanguageServerPool, path: Path, workspace: Path, server: str | None, hidden: tuple[str, ...]
) -> Slot:
    """Return the server of a file: the named one, or the first that is installed and works. It does not see the
    `hidden` paths."""
    kinds = for_file(pool.habits.kinds, path)
    if server is not None:
        kinds = [_find_kind(pool.habits.kinds, server)]
    elif not kinds:
        ending = path.suffix or path.name
        raise LspError(
            "LSP_SERVER_NOT_FOUND",
            f"no language server is known for {ending} files. Read the file instead; "
            "one can be added in the setting lsp.servers.",
        )
    working = [kind for kind in kinds if pool.why_not(kind) is None]
    usable = [pool.slot(kind, root_of(kind, path, workspace), hidden) for kind in working]
    for slot in usable:
        if slot.broken is None:
            return slot
    # A broken server is still returned if there is no other: its error says why it is broken.
    if usable:
        return usable[0]
    what = f"{path.suffix or path.name} files"
    raise LspError("LSP_SERVER_NOT_FOUND", f"no language server for {what} can be used. {_reasons(pool, kinds)}")


def slots_in(pool: LanguageServerPool, workspace: Path, server: str | None, hidden: tuple[str, ...]) -> list[Slot]:
    """Return the servers for the files of a workspace, one for each language and project. They do not see the
    `hidden` paths."""
    kinds = pool.habits.kinds
    if server is not None:
        kinds = (_find_kind(kinds, server),)
    usable = [kind for kind in kinds if pool.why_not(kind) is None]
    slots = [pool.slot(kind, root, hidden) for kind, root in find_projects(_one_each(usable), workspace)]
    if slots:
        return slots
    missing = [kind for kind, _ in find_projects(_one_each(kinds), workspace)]
    if missing:
        reasons = _reasons(pool, missing)
        raise LspError("LSP_SERVER_NOT_FOUND", f"no language server for the files here can be used. {reasons}")
    raise LspError(
        "LSP_SERVER_NOT_FOUND", f"there are no files here for which a language server is known. For Python: {EXTRA}"
    )


def hidden_from(context: ToolContext) -> tuple[str, ...]:
    """Return the paths that rules keep from a run, which no server may tell it about. Raise LspError. It may take a
    while in a large workspace."""
    if context.confine is None:
        return ()
    try:
        return context.confine.hidden()
    except OSError as error:
        raise LspError("LSP_SERVER_NOT_FOUND", f"no language server can be used. {error}") from None


def _reasons(pool: LanguageServerPool, kinds: Sequence[ServerKind]) -> str:
    return "; ".join(f"{kind.name}: {pool.why_not(kind)}" for kind in kinds)


def _one_each(kinds: Sequence[ServerKind]) -> list[ServerKind]:
    """Return the first of the servers that are for the same files."""
    found: dict[frozenset[str], ServerKind] = {}
    for kind in kinds:
        if kind.enabled:
            found.setdefault(frozenset(kind.languages), kind)
    return list(found.values())


def _find_kind(kinds: Sequence[ServerKind], name: str) -> ServerKind:
    found = next((kind for kind in kinds if kind.name.lower() == name.strip().lower()), None)
    if found is None:
        names = ", ".join(kind.name for kind in kinds)
        raise LspError("LSP_SERVER_NOT_FOUND", f"no language server is called {name[:40]!r}. There are: {names}.")
    return found


async def status(pool: LanguageServerPool, question: LspQuestion, context: ToolContext) -> str:
    """Return one line for each known server: running, failed, installed, or how to install it."""
    lines = []
    for kind in pool.habits.kinds:
        if question.server and kind.name.lower() != question.server.lower():
            continue
        states = []
        for slot in pool.slots.values():
            if slot.kind.name == kind.name and (slot.connection or slot.broken):
                states.append(f"{_state(slot)} in {shown(slot.root, context)}")
        why_not = await in_thread(partial(pool.why_not, kind))
        if not states:
            states = [why_not or "installed, not started yet"]
        lines.append(f"{kind.name} ({' '.join(sorted(kind.languages))}): {'; '.join(states)}")
    return "\n".join(lines) or f"No language server is called {question.server!r}."


def _state(slot: Slot) -> str:
    session = slot.connection
    if session is None:
        return f"failed ({slot.broken})"
    doing = "still reading the project" if session.busy else "ready"
    return f"running, process {session.pid}, {doing}"


async def restart(pool: LanguageServerPool, question: LspQuestion, context: ToolContext) -> str:
    """End servers and start them anew: the named one, the file's, or all that were started."""
    slots: list[Slot] = []
    for slot in pool.slots.values():
        named = question.server is None or slot.kind.name.lower() == question.server.lower()
        if named and (question.file is None or slot.kind.handles(question.file.path)):
            slots.append(slot)
    if not slots:
        slots = await in_thread(lambda: slots_in(pool, context.root, question.server, hidden_from(context)))
    said = []
    for slot in slots:
        try:
            session = await slot.restart()
            said.append(f"{slot.kind.name} in {shown(slot.root, context)}: running, process {session.pid}")
        except LspError as error:
            said.append(f"{slot.kind.name} in {shown(slot.root, context)}: {error}")
    return "\n".join(said)
