"""The choice of a language server for a question, the state of all servers, and their restart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from retinue.capabilities.lsp.catalog import ServerKind, find_projects, for_file, root_of
from retinue.capabilities.lsp.pool import EXTRA, LanguageServerPool, Slot
from retinue.capabilities.lsp.protocol import LspError
from retinue.capabilities.lsp.tool import LspQuestion
from retinue.core.tool import ToolContext
from retinue.tools.paths import shown
from retinue.tools.processes import in_thread


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
