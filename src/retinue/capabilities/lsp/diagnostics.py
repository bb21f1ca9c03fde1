"""Diagnostics of language servers: of files, of a whole workspace, and of files that were just edited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.capabilities.lsp.connection import RefusedError
from retinue.capabilities.lsp.pool import LanguageServerPool, hidden_from
from retinue.capabilities.lsp.session import LspSession, SourceFile, UnsupportedError, path_of
from retinue.capabilities.lsp.show import AnswerFiles, ServerDiagnostic, format_list, problems, read_source, summary
from retinue.capabilities.lsp.tool import LspError, bad_input
from retinue.core.tool import ToolContext
from retinue.tools.base import ToolError
from retinue.tools.paths import Confined, confine
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from retinue.capabilities.lsp.actions import Asking

T = TypeVar("T")
R = TypeVar("R")
Diagnosis = tuple[list[ServerDiagnostic], str]
"""Diagnostics, and a note where they are not complete."""
MAX_EDITED_FILES = 16
MAX_CONCURRENT_FILES = 8
MAX_NAMED = 20
MAX_ASKED_FILES = 200
"""Files that are asked about one by one where a server does not look at a workspace by itself."""


async def diagnose_files(asking: Asking) -> str:
    question = asking.question
    files = [*([question.file] if question.file else []), *question.files]
    if not files:
        raise bad_input('diagnostics needs "file" or "files"; workspace-diagnostics looks at everything.')
    several = len(files) > 1
    parts = await _map(files, lambda file: _diagnose_one(asking, file, several))
    return _report(parts, f"No problems found in {len(files)} files." if several else "No problems found.")


async def _diagnose_one(asking: Asking, file: Confined, several: bool) -> Diagnosis:
    try:
        source = await asking.source(str(file.path))
        return await (await asking.slot(source.path)).use(partial(_of_file, asking, source))
    except ToolError as error:
        if not several:
            raise
        return [], f"{file.shown}: {error}"


async def _of_file(asking: Asking, source: SourceFile, session: LspSession) -> Diagnosis:
    if session not in asking.synced:
        asking.synced.append(session)
        await session.sync()
    report = await session.diagnostics(source, asking.seconds)
    texts = AnswerFiles(asking.context, session.encoding)
    if report is None:
        return [], f"{texts.name(source.path)}: the language server has not reported in {asking.seconds:g} s."
    return problems(source.path, report, texts, asking.question.severity), ""


async def _map(things: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Do the work for all things, a few at a time: a session keeps only a few files open at its server."""
    slots = asyncio.Semaphore(MAX_CONCURRENT_FILES)

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
    slots = await asking.workspace_slots()
    parts = [await slot.use(partial(_of_workspace, asking)) for slot in slots]
    return _report(parts, "No problems found in the workspace.")


async def _of_workspace(asking: Asking, session: LspSession) -> Diagnosis:
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
    diagnostics: list[ServerDiagnostic] = []
    for file in getattr(report, "items", None) or ():
        path = path_of(file.uri)
        if path is not None and texts.is_inside(path):
            diagnostics += problems(path, getattr(file, "items", None) or (), texts, asking.question.severity)
    return diagnostics


async def _one_by_one(asking: Asking, session: LspSession) -> Diagnosis:
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
    reports = [report for report in await _map(sources[:MAX_ASKED_FILES], one) if report is not None]
    note = ""
    if len(reports) < len(sources):
        note = f"{session.kind.name} was asked about {len(reports)} of {len(sources)} files."
    return list(chain.from_iterable(reports)), note


async def after_edit(pool: LanguageServerPool, paths: Sequence[Path], context: ToolContext, seconds: float) -> str:
    """Return the diagnostics of files that were just changed, as a note for the result of the edit, or an empty text.

    This never fails and never takes longer than `seconds`: a server that does not run yet is started for the next time.
    """
    try:
        async with asyncio.timeout(seconds):
            looks = [_diagnose_edited(pool, path, context, seconds) for path in paths[:MAX_EDITED_FILES]]
            diagnostics = sorted(chain.from_iterable(await asyncio.gather(*looks)))
    except TimeoutError:
        return ""
    if not diagnostics:
        return ""
    lines = list(map(str, diagnostics[:MAX_NAMED]))
    if len(diagnostics) > MAX_NAMED:
        lines.append(f"[{len(diagnostics) - MAX_NAMED} more]")
    return "\n".join([f"Diagnostics after this edit ({summary(diagnostics)}):", *lines])


async def _diagnose_edited(
    pool: LanguageServerPool, path: Path, context: ToolContext, seconds: float
) -> list[ServerDiagnostic]:
    async def work(session: LspSession) -> list[ServerDiagnostic]:
        await session.sync()
        report = await session.diagnostics(source, seconds)
        return problems(path, report or (), AnswerFiles(context, session.encoding), "warning")

    try:
        confined = confine(str(path), context)
        hidden = await in_thread(lambda: hidden_from(context))
        slot = pool.slot_for(confined.path, confined.root, None, hidden)
        source = await in_thread(lambda: read_source(confined))
        # A start of its own, which goes on when the timeout of this look cancels the use below.
        slot.begin()
        return await slot.use(work)
    except (ToolError, OSError, UnsupportedError, RefusedError):
        return []


def _report(parts: Sequence[Diagnosis], nothing: str) -> str:
    diagnostics = sorted(chain.from_iterable(part[0] for part in parts))
    lines = [note for _, note in parts if note][:MAX_NAMED]
    if diagnostics:
        lines.insert(0, f"{summary(diagnostics)}\n{format_list(map(str, diagnostics), 'problems')}")
    return "\n".join(lines) or nothing
