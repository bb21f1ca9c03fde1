"""The actions of the lsp tool, and the diagnostics of files that were just edited. Each returns text for the model; an
empty result is not a failure.

Changes that a server proposes are shown as text; no file is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from retinue.capabilities.lsp.connection import RefusedError
from retinue.capabilities.lsp.pool import LanguageServerPool, ServerSlot, hidden_from
from retinue.capabilities.lsp.protocol import TextDocument, TextPosition
from retinue.capabilities.lsp.session import LspSession, SourceFile, UnsupportedError, converter, path_of
from retinue.capabilities.lsp.show import (
    MAX_LISTED_ENTRIES,
    AnswerFiles,
    Location,
    ServerDiagnostic,
    format_list,
    list_locations,
    problems,
    prose,
    read_source,
    shorten,
    summary,
)
from retinue.capabilities.lsp.symbols import find_mention, match_symbols, outline_of, search
from retinue.capabilities.lsp.tool import LspError, LspQuestion, bad_input, workspace_of
from retinue.core.tool import ToolContext
from retinue.tools.base import ToolError
from retinue.tools.paths import Confined, confine, visible
from retinue.tools.processes import in_thread

Result = TypeVar("Result")
Output = TypeVar("Output")
Diagnosis = tuple[list[ServerDiagnostic], str]
"""Diagnostics, and a note if they are incomplete."""
MAX_EDITED_FILES = 16
MAX_CONCURRENT_FILES = 8
MAX_LISTED_DIAGNOSTICS = 20
MAX_SINGLE_FILES = 200
"""The limit for asking about single files, if a server has no diagnostics of a workspace."""
MAX_EDIT_LENGTH = 160
_PROPOSAL_NOTE = "Proposed, nothing was changed:\n"
_METHODS = {
    "definition": "textDocument/definition",
    "references": "textDocument/references",
    "hover": "textDocument/hover",
    "signature": "textDocument/signatureHelp",
    "rename": "textDocument/rename",
}


class Asking(Struct):
    """The answering of one question. `reads` are the files that were read for it."""

    pool: LanguageServerPool
    context: ToolContext
    question: LspQuestion
    seconds: float
    reads: dict[str, None] = field(default_factory=dict)
    synced: list[LspSession] = field(default_factory=list)
    provider: str | None = None
    """The server that was asked first."""

    async def answer(self) -> str:
        """Return the answer, which may be a refusal of the server. Raise ToolError."""
        try:
            match self.question.action:
                case "symbols" if self.question.file is None:
                    return await self._search()
                case "symbols":
                    return await self._in_file(self._outline)
                case "diagnostics":
                    return await diagnose_files(self)
                case "workspace-diagnostics":
                    return await diagnose_workspace(self)
                case "codeAction":
                    return await self._in_file(self._actions_at)
                case _:
                    return await self._at_position()
        except UnsupportedError as error:
            return f"The language server does not offer this ({error})."
        except RefusedError as error:
            return f"The language server has no answer: {error}"

    # Shared steps

    async def source(self, path: str | None = None) -> SourceFile:
        confined = self.question.file if path is None else confine(path, self.context)
        if confined is None:
            raise bad_input(f'{self.question.action} needs "file".')
        source = await in_thread(lambda: read_source(confined))
        self.reads[str(confined.path)] = None
        return source

    async def slot(self, path: Path) -> ServerSlot:
        workspace = workspace_of(confine(str(path), self.context), self.context)
        hidden = await in_thread(lambda: hidden_from(self.context))
        slot = self.pool.slot_for(path, workspace, self.question.server, hidden)
        self.provider = self.provider or slot.kind.name
        return slot

    async def workspace_slots(self) -> list[ServerSlot]:
        server, root = self.question.server, self.context.root
        slots = await in_thread(lambda: self.pool.slots_in(root, server, hidden_from(self.context)))
        self.provider = self.provider or slots[0].kind.name
        return slots

    async def _in_file(self, work: Callable[[LspSession, SourceFile], Awaitable[str]]) -> str:
        source = await self.source()

        async def use(session: LspSession) -> str:
            await session.sync()
            return await work(session, source)

        return await (await self.slot(source.path)).use(use)

    # At a position

    async def _at_position(self) -> str:
        question = self.question
        if question.action == "rename" and not question.new_name:
            raise bad_input('rename needs "newName".')
        if question.file is not None:
            return await self._in_file(self._ask_in_file)
        # Without a file, the servers of the workspace search for the symbol.
        query = question.query
        if not query:
            raise bad_input(f'{question.action} needs "file" with "line" and "column", or "query" with a name.')
        candidates, outside = await search(self, query, exact=True)
        if not candidates:
            return f"No symbol named {query!r} found in the workspace."
        lines = [candidate.shown for candidate in candidates]
        if question.action == "definition":
            return format_list(lines, "definitions", outside=outside)
        if len(lines) > 1:
            return f"{len(lines)} symbols have that name; ask again with file:\n{format_list(lines, 'symbols')}"
        only = candidates[0]
        source = await self.source(str(only.path))

        async def use(session: LspSession) -> str:
            await session.sync()
            return await self._ask_at(session, source, only.spot)

        return await only.slot.use(use)

    async def _ask_in_file(self, session: LspSession, source: SourceFile) -> str:
        spots = await self._spots(session, source)
        texts = AnswerFiles(self.context, session.encoding)
        if not spots:
            return f"No symbol named {self.question.query!r} found in {texts.name(source.path)}."
        if len(spots) == 1:
            return await self._ask_at(session, source, spots[0])
        document = TextDocument(source.text)
        lines = []
        for spot in spots:
            units = document.to_units(spot, session.encoding)
            lines.append(texts.at(Location(source.path, "", spot.line, units)))
        if self.question.action == "definition":
            return format_list(lines, "definitions")
        return f"{len(spots)} symbols have that name; ask again with line:\n{format_list(lines, 'symbols')}"

    async def _spots(self, session: LspSession, source: SourceFile) -> list[TextPosition]:
        """Return the positions that a question is about; several if several symbols have that name."""
        question, document = self.question, TextDocument(source.text)
        line = None if question.line is None else question.line - 1
        if line is not None and line >= len(document.lines):
            raise bad_input(f"the file has only {len(document.lines)} lines.")
        if question.column is not None and line is not None:
            if question.column - 1 > len(document.line(line)):
                raise bad_input(f"line {line + 1} has only {len(document.line(line))} characters.")
            return [TextPosition(line, question.column - 1)]
        if not question.query:
            raise bad_input('say where: "line" and "column", or "query" with the name of a symbol.')
        if line is None:
            with suppress(UnsupportedError):
                symbols = match_symbols(await outline_of(session, source, self.seconds), question.query, line)
                if symbols:
                    return list(dict.fromkeys(symbol.spot for symbol in symbols))
        # A name that the file uses but does not define is not in the outline.
        return find_mention(document, question.query, line)

    async def _ask_at(self, session: LspSession, source: SourceFile, spot: TextPosition) -> str:
        action = self.question.action
        uri, position = await session.open(source), _position(spot, TextDocument(source.text), session)
        params: dict[str, Any] = {"textDocument": {"uri": uri}, "position": position}
        if action == "references":
            params["context"] = {"includeDeclaration": True}
        if action == "rename":
            params["newName"] = self.question.new_name
        result = None
        try:
            result = await session.ask(_METHODS[action], params, self.seconds)
        except UnsupportedError:
            if action != "signature":
                raise
        # Servers return signatures only inside the brackets of a call; at a name, hover returns the same text.
        if action == "signature" and (result is None or not result.signatures):
            result = await session.ask(_METHODS["hover"], params, self.seconds)
        texts = AnswerFiles(self.context, session.encoding)
        return await in_thread(lambda: self._describe_result(result, texts))

    def _describe_result(self, result: Any, texts: AnswerFiles) -> str:
        match self.question.action:
            case "definition":
                lines = list(map(texts.at, list_locations(result)))
                return format_list(lines, "definitions") if lines else "No definition found."
            case "references":
                locations = list_locations(result)
                if not locations:
                    return "No references found."
                inside = [location for location in locations if texts.is_inside(location.path)]
                inside.sort(key=lambda location: (str(location.path), location.line, location.units))
                # Each location is read from its file, so only the listed ones are formatted.
                lines = list(map(texts.at, inside[:MAX_LISTED_ENTRIES]))
                return format_list(lines, "references", len(inside), len(locations) - len(inside))
            case "rename":
                lines = list_changes(result, texts)
                return _PROPOSAL_NOTE + format_list(lines, "changes") if lines else "No changes found for this rename."
            case _:
                return shorten(_description(result)) or f"No {self.question.action} information found."

    # Others

    async def _search(self) -> str:
        if not self.question.query:
            raise bad_input('symbols needs "file", or "query" to search the workspace.')
        candidates, outside = await search(self, self.question.query, exact=False)
        if not candidates:
            return f"No symbols found for {self.question.query!r}."
        return format_list(
            [f"{candidate.shown}  ({candidate.title})" for candidate in candidates], "symbols", outside=outside
        )

    async def _outline(self, session: LspSession, source: SourceFile) -> str:
        symbols = await outline_of(session, source, self.seconds)
        if self.question.query:
            symbols = match_symbols(symbols, self.question.query, None)
        lines = []
        for symbol in symbols:
            indent = "  " * (len(symbol.names) - 1)
            lines.append(f"{indent}{symbol.spot} {symbol.kind} {symbol.names[-1]} {symbol.detail}".rstrip())
        return format_list(lines, "symbols") if lines else "No symbols found."

    async def _actions_at(self, session: LspSession, source: SourceFile) -> str:
        question, document = self.question, TextDocument(source.text)
        first = (question.line or 1) - 1
        last = (question.end_line or first + 1) - 1
        start = TextPosition(first, (question.column or 1) - 1)
        end = TextPosition(last, question.end_column - 1 if question.end_column else len(document.line(last)))
        report = await session.diagnostics(source, self.seconds) or []
        here = [problem for problem in report if problem.range.start.line <= last and problem.range.end.line >= first]
        params = {
            "textDocument": {"uri": await session.open(source)},
            "range": {"start": _position(start, document, session), "end": _position(end, document, session)},
            "context": {"diagnostics": list(map(converter().unstructure, here))},
        }
        result = await session.ask("textDocument/codeAction", params, self.seconds)
        texts = AnswerFiles(self.context, session.encoding)
        lines: list[str] = []
        for action in result or ():
            lines.append(f"- {action.title}")
            # A server may list plain commands among its actions; these have no edit.
            lines += map("    ".__add__, list_changes(getattr(action, "edit", None), texts))
        return _PROPOSAL_NOTE + format_list(lines, "lines") if lines else "No code actions found."


def list_changes(edit: Any, texts: AnswerFiles) -> list[str]:
    """Return one line for each replacement of a workspace edit."""
    if edit is None:
        return []
    lines = []
    for path, change in _changes(edit):
        first, last = change.range.start, change.range.end
        start = Location(path, "", first.line, first.character)
        old = f"lines {first.line + 1}–{last.line + 1}"
        if first.line == last.line:
            document = texts.document(path)
            end = texts.spot(Location(path, "", last.line, last.character)).column
            old = "…"
            if document is not None:
                old = _brief(document.line(first.line)[texts.spot(start).column : end])
        lines.append(f"{texts.at(start, with_line=False)}  {old} → {_brief(change.new_text)}")
    for operation in edit.document_changes or ():
        # Files that are created, renamed or deleted have a kind; changes of text have none.
        if hasattr(operation, "kind"):
            lines.append(f"{operation.kind} {visible(operation.uri)}")
    return lines


def _changes(edit: Any) -> Iterator[tuple[Path | None, Any]]:
    for uri, changes in (edit.changes or {}).items():
        for change in changes:
            yield path_of(uri), change
    for document in edit.document_changes or ():
        for change in getattr(document, "edits", ()):
            if hasattr(change, "new_text"):
                yield path_of(document.text_document.uri), change


def _brief(text: str) -> str:
    return visible(repr(f"{text[:MAX_EDIT_LENGTH]}…" if len(text) > MAX_EDIT_LENGTH else text))


def _position(spot: TextPosition, document: TextDocument, session: LspSession) -> dict[str, int]:
    return {"line": spot.line, "character": document.to_units(spot, session.encoding)}


def _description(result: Any) -> str:
    """Return the text of a hover, or the signatures of a call with the active one first."""
    if result is None:
        return ""
    signatures = getattr(result, "signatures", None)
    if signatures is None:
        return prose(result.contents)
    active = result.active_signature or 0
    ordered = [*signatures[active : active + 1], *signatures[:active], *signatures[active + 1 :]]
    parts = ["\n".join(filter(None, (signature.label, prose(signature.documentation)))) for signature in ordered]
    return "\n\n".join(parts)


# Diagnostics


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


async def _map(inputs: Sequence[Result], work: Callable[[Result], Awaitable[Output]]) -> list[Output]:
    """Do the work for all inputs, a few at a time, because a session has only a few files open."""
    slots = asyncio.Semaphore(MAX_CONCURRENT_FILES)

    async def one(value: Result) -> Output:
        async with slots:
            return await work(value)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(value)) for value in inputs]
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
    # A server may delay the answer until something has changed since the named reports. An unknown report is
    # replaced at once.
    earlier = [{"uri": path.as_uri(), "value": "none"} for path in session.sources[:1]]
    try:
        report = await session.ask("workspace/diagnostic", {"previousResultIds": earlier}, asking.seconds)
    except LspError as error:
        if error.code != "LSP_TIMEOUT":
            raise
        return [], f"{session.kind.name} has not reported in {asking.seconds:g} s."
    return await in_thread(partial(_read_report, asking, report, AnswerFiles(asking.context, session.encoding))), ""


def _read_report(asking: Asking, report: Any, texts: AnswerFiles) -> list[ServerDiagnostic]:
    """Return the diagnostics inside of the workspace, because the project of a server may be larger."""
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
    reports = [report for report in await _map(sources[:MAX_SINGLE_FILES], one) if report is not None]
    note = ""
    if len(reports) < len(sources):
        note = f"{session.kind.name} was asked about {len(reports)} of {len(sources)} files."
    return list(chain.from_iterable(reports)), note


async def after_edit(pool: LanguageServerPool, paths: Sequence[Path], context: ToolContext, seconds: float) -> str:
    """Return the diagnostics of files that were just changed, as a note for the result of the edit, or an empty text.

    It never fails and never takes longer than `seconds`. A server that is not running yet is started for the next edit.
    """
    try:
        async with asyncio.timeout(seconds):
            looks = [_diagnose_edited(pool, path, context, seconds) for path in paths[:MAX_EDITED_FILES]]
            diagnostics = sorted(chain.from_iterable(await asyncio.gather(*looks)))
    except TimeoutError:
        return ""
    if not diagnostics:
        return ""
    lines = list(map(str, diagnostics[:MAX_LISTED_DIAGNOSTICS]))
    if len(diagnostics) > MAX_LISTED_DIAGNOSTICS:
        lines.append(f"[{len(diagnostics) - MAX_LISTED_DIAGNOSTICS} more]")
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
        # The start continues when the timeout cancels the use below.
        slot.begin()
        return await slot.use(work)
    except (ToolError, OSError, UnsupportedError, RefusedError):
        return []


def _report(parts: Sequence[Diagnosis], nothing: str) -> str:
    diagnostics = sorted(chain.from_iterable(listed for listed, _ in parts))
    lines = [note for _, note in parts if note][:MAX_LISTED_DIAGNOSTICS]
    if diagnostics:
        lines.insert(0, f"{summary(diagnostics)}\n{format_list(map(str, diagnostics), 'problems')}")
    return "\n".join(lines) or nothing
