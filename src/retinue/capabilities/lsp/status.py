"""Which language servers there are, what state they are in, and starting one anew."""

from __future__ import annotations

from functools import partial

from retinue.capabilities.lsp.choosing import slots_in
from retinue.capabilities.lsp.errors import LspError
from retinue.capabilities.lsp.pool import Pool, Slot
from retinue.capabilities.lsp.question import Question
from retinue.core.tool import ToolContext
from retinue.tools.paths import shown
from retinue.tools.processes import in_thread


async def status(pool: Pool, question: Question, context: ToolContext) -> str:
    """One line for each known server: running, failed, installed, or how to get it."""
    lines = []
    for kind in pool.habits.kinds:
        if question.server and kind.name.lower() != question.server.lower():
            continue
        slots = [slot for (name, _), slot in pool.slots.items() if name == kind.name]
        states = [f"{_state(slot)} in {shown(slot.root, context)}" for slot in slots if slot.session or slot.broken]
        why_not = await in_thread(partial(pool.why_not, kind))
        if not states:
            states = [why_not or "installed, not started yet"]
        lines.append(f"{kind.name} ({' '.join(sorted(kind.languages))}): {'; '.join(states)}")
    return "\n".join(lines) or f"No language server is called {question.server!r}."


def _state(slot: Slot) -> str:
    session = slot.session
    if session is None:
        return f"failed ({slot.broken})"
    return f"running, process {session.pid}, {'still reading the project' if session.busy else 'ready'}"


async def restart(pool: Pool, question: Question, context: ToolContext) -> str:
    """Ends servers and starts them anew: the named one, the file's, or all that were started."""
    slots = [
        slot
        for slot in pool.slots.values()
        if (question.server is None or slot.kind.name.lower() == question.server.lower())
        and (question.file is None or slot.kind.handles(question.file.path))
    ]
    if not slots:
        slots = await in_thread(lambda: slots_in(pool, context.root, question.server))
    said = []
    for slot in slots:
        try:
            session = await slot.restart()
            said.append(f"{slot.kind.name} in {shown(slot.root, context)}: running, process {session.pid}")
        except LspError as error:
            said.append(f"{slot.kind.name} in {shown(slot.root, context)}: {error}")
    return "\n".join(said)
