"""What servers find wrong: with files, with a whole workspace, and with what was just edited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.domain.tool import ToolContext
from retinue.tools.errors import ToolError
from retinue.tools.lsp.choosing import slot_for
from retinue.tools.lsp.errors import RefusedError, bad_input
from retinue.tools.lsp.pool import Pool
from retinue.tools.lsp.session import Session, Source, UnsupportedError, path_of
from retinue.tools.lsp.show import MOST_ITEMS, Problem, Texts, listed, problems, summary
from retinue.tools.lsp.sources import read_source
from retinue.tools.paths import confine
from retinue.tools.threads import in_thread

if TYPE_CHECKING:
    from lsprotocol import types

    from retinue.tools.lsp.actions import Asking

MOST_TOUCHED = 16
_MOST_NAMED = 20
_MOST_OPENED = 200
"""Files that are asked about one by one where a server does not look at a workspace by itself."""


async def diagnose_files(asking: Asking) -> str:
    question = asking.question
    named = [*([question.file] if question.file else []), *question.files]
    if not named:
        raise bad_input('diagnostics needs "file" or "files"; workspace-diagnostics looks at everything.')
    found: list[Problem] = []
    notes: list[str] = []
    several = len(named) > 1
    for place in named:
        try:
            source = await asking.source(str(place.path))
            said, encoding = await asking.slot(source.path).use(partial(_of_file, asking, source))
        except ToolError as error:
            if not several:
                raise
            notes.append(f"{place.shown}: {error}")
            continue
        if said is None:
            notes.append(f"{place.shown}: the language server has not reported in {asking.seconds:g} s.")
        else:
            found += problems(source.path, said, Texts(asking.context, encoding), question.severity)
    return _report(found, notes, f"No problems found in {len(named)} files." if several else "No problems found.")


async def _of_file(asking: Asking, source: Source, session: Session) -> tuple[list[types.Diagnostic] | None, Any]:
    await session.sync()
    return await session.diagnostics(source, asking.seconds), session.encoding


async def diagnose_workspace(asking: Asking) -> str:
    if asking.question.files or asking.question.file:
        return await diagnose_files(asking)
    found: list[Problem] = []
    notes: list[str] = []
    for slot in await asking.workspace_slots():
        more, note = await slot.use(partial(_of_workspace, asking))
        found += more
        notes += [note] if note else []
    return _report(found, notes, "No problems found in the workspace.")


async def _of_workspace(asking: Asking, session: Session) -> tuple[list[Problem], str]:
    await session.sync()
    if session.looks_at_workspaces:
        report = await session.ask("workspace/diagnostic", {"previousResultIds": []}, asking.seconds)
        return await in_thread(partial(_reported, asking, report, Texts(asking.context, session.encoding))), ""
    return await _one_by_one(asking, session)


def _reported(asking: Asking, report: Any, texts: Texts) -> list[Problem]:
    """Of a report about a whole project, what is in the workspace: the project may be larger."""
    found = []
    for each in getattr(report, "items", None) or ():
        path = path_of(each.uri)
        if path is not None and texts.is_inside(path):
            found += problems(path, getattr(each, "items", None) or (), texts, asking.question.severity)
    return found


async def _one_by_one(asking: Asking, session: Session) -> tuple[list[Problem], str]:
    texts = Texts(asking.context, session.encoding)
    found: list[Problem] = []
    give_up = asyncio.get_running_loop().time() + asking.seconds
    looked = 0
    for path in session.sources[:_MOST_OPENED]:
        left = give_up - asyncio.get_running_loop().time()
        if left <= 0 or len(found) > MOST_ITEMS:
            break
        looked += 1
        try:
            source = await asking.source(str(path))
        except ToolError:
            continue
        found += problems(path, await session.diagnostics(source, left) or (), texts, asking.question.severity)
    total = len(session.sources)
    return found, "" if looked == total else f"{session.kind.name} was asked about {looked} of {total} files."


async def after_edit(pool: Pool, paths: Sequence[Path], context: ToolContext, seconds: float) -> str:
    """What servers find wrong with files that were just changed, as a note beside the result of
    the edit; empty when there is nothing to say. Never fails, and never takes longer than
    `seconds`: a server that is not there yet is started for the next time."""
    try:
        async with asyncio.timeout(seconds):
            looks = [_touched(pool, path, context, seconds) for path in paths[:MOST_TOUCHED]]
            found = sorted(problem for some in await asyncio.gather(*looks) for problem in some)
    except TimeoutError:
        return ""
    if not found:
        return ""
    more = f"\n[{len(found) - _MOST_NAMED} more]" if len(found) > _MOST_NAMED else ""
    lines = "\n".join(map(str, found[:_MOST_NAMED]))
    return f"Diagnostics after this edit ({summary(found)}):\n{lines}{more}"


async def _touched(pool: Pool, path: Path, context: ToolContext, seconds: float) -> list[Problem]:
    async def work(session: Session) -> list[Problem]:
        await session.sync()
        said = await session.diagnostics(source, seconds)
        return problems(path, said or (), Texts(context, session.encoding), "warning")

    try:
        place = confine(str(path), context)
        slot = slot_for(pool, place.path, place.root, None)
        source = await in_thread(lambda: read_source(place))
        slot.begin()
        return await slot.use(work)
    except (ToolError, OSError, UnsupportedError, RefusedError):
        return []


def _report(found: list[Problem], notes: list[str], nothing: str) -> str:
    lines = map(str, sorted(found))
    parts = [f"{summary(found)}\n{listed(lines, 'problems')}"] if found else []
    parts += notes[:_MOST_NAMED]
    return "\n".join(parts) if parts else nothing
