"""Diagnostics of language servers: of files, of a whole workspace, and of files that were just edited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.capabilities.lsp.pool import LanguageServerPool, hidden_from, slot_for
from retinue.capabilities.lsp.protocol import LspError, RefusedError, bad_input
from retinue.capabilities.lsp.session import LspSession, SourceFile, UnsupportedError, path_of
from retinue.capabilities.lsp.show import AnswerFiles, ServerDiagnostic, format_list, problems, read_source, summary
from retinue.core.tool import ToolContext
from retinue.tools.base import ToolError
from retinue.tools.paths import Confined, confine
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from retinue.capabilities.lsp.actions import Asking

T = TypeVar("T")
R = TypeVar("R")
MOST_TOUCHED = 16
_AT_ONCE = 8
_MOST_NAMED = 20
_MOST_OPENED = 200
"""Files that are asked about one by one where a server does not look at a workspace by itself."""


async def diagnose_files(asking: Asking) -> str:
    question = asking.question
    named = list(question.files)
    if question.file:
        named.insert(0, question.file)
    if not named:
        raise bad_input('diagnostics needs "file" or "files"; workspace-diagnostics looks at everything.')
    several = len(named) > 1
    found: list[ServerDiagnostic] = []
    notes: list[str] = []
    for some, note in await _each(named, lambda file: _diagnose_one(asking, file, several)):
        found += some
        notes.append(note)
    nothing = f"No problems found in {len(named)} files." if several else "No problems found."
    return _report(found, notes, nothing)


async def _diagnose_one(asking: Asking, file: Confined, several: bool) -> tuple[list[ServerDiagnostic], str]:
    try:
        source = await asking.source(str(file.path))
        return await (await asking.slot(source.path)).use(partial(_of_file, asking, source))
    except ToolError as error:
        if not several:
            raise
        return [], f"{file.shown}: {error}"


async def _of_file(asking: Asking, source: SourceFile, session: LspSession) -> tuple[list[ServerDiagnostic], str]:
    if session not in asking.synced:
        asking.synced.append(session)
        await session.sync()
    said = await session.diagnostics(source, asking.seconds)
    texts = AnswerFiles(asking.context, session.encoding)
    if said is None:
        return [], f"{texts.name(source.path)}: the language server has not reported in {asking.seconds:g} s."
    return problems(source.path, said, texts, asking.question.severity), ""


async def _each(things: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Do the work for all things, a few at a time: a session keeps only a few files open at its server."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(thing: T) -> R:
        async with slots:
            return await work(thing)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(thing)) for thing in things]
    except* ToolError as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def diagnose_workspace(asking: Asking) -> str:
    if asking.question.files or asking.question.file:
        return await diagnose_files(asking)
    found: list[ServerDiagnostic] = []
    notes: list[str] = []
    for slot in await asking.workspace_slots():
        more, note = await slot.use(partial(_of_workspace, asking))
        found += more
        notes.append(note)
    return _report(found, notes, "No problems found in the workspace.")


async def _of_workspace(asking: Asking, session: LspSession) -> tuple[list[ServerDiagnostic], str]:
    await session.sync()
    if not session.looks_at_workspaces:
        return await _one_by_one(asking, session)
    # A server may keep this request open while nothing has changed since the reports that we name. A report that it
    # never made is one to replace at once.
    earlier = [{"uri": path.as_uri(), "value": "none"} for path in session.sources[:1]]
    try:
        report = await session.ask("workspace/diagnostic", {"previousResultIds": earlier}, asking.seconds)
    except LspError as error:
        if error.code != "LSP_TIMEOUT":
            raise
        return [], f"{session.kind.name} has not reported in {asking.seconds:g} s."
    return await in_thread(partial(_read_report, asking, report, AnswerFiles(asking.context, session.encoding))), ""


def _read_report(asking: Asking, report: Any, texts: AnswerFiles) -> list[ServerDiagnostic]:
    """Return the diagnostics inside the workspace: the project that a server reports on may be larger."""
    found = []
    for each in getattr(report, "items", None) or ():
        path = path_of(each.uri)
        if path is not None and texts.is_inside(path):
            found += problems(path, getattr(each, "items", None) or (), texts, asking.question.severity)
    return found


async def _one_by_one(asking: Asking, session: LspSession) -> tuple[list[ServerDiagnostic], str]:
    asking.synced.append(session)
    give_up = asyncio.get_running_loop().time() + asking.seconds

    async def one(path: Path) -> list[ServerDiagnostic] | None:
        if asyncio.get_running_loop().time() > give_up:
            return None
        try:
            return (await _of_file(asking, await asking.source(str(path)), session))[0]
        except ToolError:
            return []

    sources = session.sources
    asked = await _each(sources[:_MOST_OPENED], one)
    found: list[ServerDiagnostic] = []
    looked = 0
    for some in asked:
        if some is not None:
            looked += 1
            found += some
    note = ""
    if looked < len(sources):
        note = f"{session.kind.name} was asked about {looked} of {len(sources)} files."
    return found, note


async def after_edit(pool: LanguageServerPool, paths: Sequence[Path], context: ToolContext, seconds: float) -> str:
    """Return the diagnostics of files that were just changed, as a note for the result of the edit, or an empty text.

    This never fails and never takes longer than `seconds`: a server that does not run yet is started for the next time.
    """
    try:
        async with asyncio.timeout(seconds):
            looks = [_diagnose_edited(pool, path, context, seconds) for path in paths[:MOST_TOUCHED]]
            found = sorted(chain.from_iterable(await asyncio.gather(*looks)))
    except TimeoutError:
        return ""
    if not found:
        return ""
    lines = list(map(str, found[:_MOST_NAMED]))
    if len(found) > _MOST_NAMED:
        lines.append(f"[{len(found) - _MOST_NAMED} more]")
    return "\n".join([f"Diagnostics after this edit ({summary(found)}):", *lines])


async def _diagnose_edited(
    pool: LanguageServerPool, path: Path, context: ToolContext, seconds: float
) -> list[ServerDiagnostic]:
    async def work(session: LspSession) -> list[ServerDiagnostic]:
        await session.sync()
        said = await session.diagnostics(source, seconds)
        return problems(path, said or (), AnswerFiles(context, session.encoding), "warning")

    try:
        confined = confine(str(path), context)
        hidden = await in_thread(lambda: hidden_from(context))
        slot = slot_for(pool, confined.path, confined.root, None, hidden)
        source = await in_thread(lambda: read_source(confined))
        # A start of its own, which goes on when the timeout of this look cancels the use below.
        slot.begin()
        return await slot.use(work)
    except (ToolError, OSError, UnsupportedError, RefusedError):
        return []


def _report(found: list[ServerDiagnostic], notes: list[str], nothing: str) -> str:
    parts = list(filter(None, notes))[:_MOST_NAMED]
    if found:
        lines = map(str, sorted(found))
        parts.insert(0, f"{summary(found)}\n{format_list(lines, 'problems')}")
    return "\n".join(parts) or nothing
