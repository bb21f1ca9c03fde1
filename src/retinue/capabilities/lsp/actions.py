"""The actions of the lsp tool. Each returns text for the model; an empty result is not a failure.

Changes that a server proposes are shown as text: nothing here changes a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from retinue.capabilities.lsp.connection import converter
from retinue.capabilities.lsp.diagnostics import diagnose_files, diagnose_workspace
from retinue.capabilities.lsp.pool import LanguageServerPool, Slot, hidden_from, slot_for, slots_in
from retinue.capabilities.lsp.protocol import RefusedError, TextDocument, TextPosition, bad_input
from retinue.capabilities.lsp.session import LspSession, SourceFile, UnsupportedError, path_of
from retinue.capabilities.lsp.show import (
    MOST_ITEMS,
    AnswerFiles,
    Location,
    format_list,
    list_locations,
    prose,
    read_source,
    shorten,
)
from retinue.capabilities.lsp.symbols import find_mention, match_symbols, outline, search
from retinue.capabilities.lsp.tool import LspQuestion, workspace_of
from retinue.core.tool import ToolContext
from retinue.tools.paths import confine, visible
from retinue.tools.processes import in_thread

_SHOWN = 160
_PROPOSED = "Proposed, nothing was changed:\n"


def list_changes(edit: Any, texts: AnswerFiles) -> list[str]:
    """Return one line for each replacement of a workspace edit."""
    if edit is None:
        return []
    lines = []
    for path, change in _changes(edit):
        start, end = change.range.start, change.range.end
        where = texts.at(Location(path, "", start.line, start.character), with_line=False)
        old = f"lines {start.line + 1}–{end.line + 1}"
        if start.line == end.line:
            old = _old(texts, path, change)
        lines.append(f"{where}  {old} → {_brief(change.new_text)}")
    for each in edit.document_changes or ():
        # Files that are created, renamed or deleted have a kind; changes of text have none.
        if hasattr(each, "kind"):
            lines.append(f"{each.kind} {visible(each.uri)}")
    return lines


def _changes(edit: Any) -> Iterator[tuple[Path | None, Any]]:
    for uri, changes in (edit.changes or {}).items():
        for change in changes:
            yield path_of(uri), change
    for document in edit.document_changes or ():
        for change in getattr(document, "edits", ()):
            if hasattr(change, "new_text"):
                yield path_of(document.text_document.uri), change


def _old(texts: AnswerFiles, path: Path | None, change: Any) -> str:
    document = texts.document(path)
    if document is None:
        return "…"
    start = texts.spot(Location(path, "", change.range.start.line, change.range.start.character))
    end = texts.spot(Location(path, "", change.range.end.line, change.range.end.character))
    return _brief(document.line(start.line)[start.column : end.column])


def _brief(text: str) -> str:
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}…"
    return visible(repr(text))


_METHODS = {
    "definition": "textDocument/definition",
    "references": "textDocument/references",
    "hover": "textDocument/hover",
    "signature": "textDocument/signatureHelp",
    "rename": "textDocument/rename",
}


class Asking(Struct):
    """One question while it is answered. `reads` are the files that were read for it."""

    pool: LanguageServerPool
    context: ToolContext
    question: LspQuestion
    seconds: float
    reads: dict[str, None]
    synced: list[LspSession] = field(default_factory=list)
    provider: str | None = None
    """The server that was asked first."""

    async def answer(self) -> str:
        """Return the answer, or raise ToolError. A refusal of the server is an answer as well."""
        try:
            match self.question.action:
                case "symbols":
                    return await self._symbols()
                case "diagnostics":
                    return await diagnose_files(self)
                case "workspace-diagnostics":
                    return await diagnose_workspace(self)
                case "codeAction":
                    source = await self.source()
                    return await (await self.slot(source.path)).use(lambda session: self._actions_at(session, source))
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
        found = await in_thread(lambda: read_source(confined))
        self.reads[str(confined.path)] = None
        return found

    async def slot(self, path: Path) -> Slot:
        workspace = workspace_of(confine(str(path), self.context), self.context)
        hidden = await in_thread(lambda: hidden_from(self.context))
        found = slot_for(self.pool, path, workspace, self.question.server, hidden)
        self.provider = self.provider or found.kind.name
        return found

    async def workspace_slots(self) -> list[Slot]:
        hidden = await in_thread(lambda: hidden_from(self.context))
        found = await in_thread(lambda: slots_in(self.pool, self.context.root, self.question.server, hidden))
        self.provider = self.provider or found[0].kind.name
        return found

    # At a position

    async def _at_position(self) -> str:
        question = self.question
        if question.action == "rename" and not question.new_name:
            raise bad_input('rename needs "newName".')
        if question.file is None:
            return await self._by_name_alone()
        source = await self.source()
        return await (await self.slot(source.path)).use(lambda session: self._ask_session(session, source))

    async def _by_name_alone(self) -> str:
        """Answer a question about a symbol without a file, which the servers of the workspace find."""
        query = self.question.query
        if not query:
            raise bad_input(f'{self.question.action} needs "file" with "line" and "column", or "query" with a name.')
        found = await search(self, query, exact=True)
        if not found.candidates:
            return f"No symbol named {query!r} found in the workspace."
        lines = [each.shown for each in found.candidates]
        if self.question.action == "definition":
            return format_list(lines, "definitions", outside=found.outside)
        if len(lines) > 1:
            return f"{len(lines)} symbols have that name; ask again with file:\n{format_list(lines, 'symbols')}"
        only = found.candidates[0]
        source = await self.source(str(only.path))
        return await only.slot.use(lambda session: self._ask_session(session, source, only.spot))

    async def _ask_session(self, session: LspSession, source: SourceFile, spot: TextPosition | None = None) -> str:
        await session.sync()
        uri = await session.open(source)
        document = TextDocument(source.text)
        texts = AnswerFiles(self.context, session.encoding)
        if spot is None:
            spots = await self._spots(session, document, uri)
            if not spots:
                return f"No symbol named {self.question.query!r} found in {texts.name(source.path)}."
            if len(spots) > 1:
                lines = []
                for each in spots:
                    units = document.to_units(each, session.encoding)
                    lines.append(texts.at(Location(source.path, "", each.line, units)))
                if self.question.action == "definition":
                    return format_list(lines, "definitions")
                return f"{len(spots)} symbols have that name; ask again with line:\n{format_list(lines, 'symbols')}"
            spot = spots[0]
        result = await self._ask_at(session, uri, spot, document)
        return await in_thread(lambda: self._describe_result(result, texts))

    async def _spots(self, session: LspSession, document: TextDocument, uri: str) -> list[TextPosition]:
        """Return the positions that the question means: several when a name stands for several symbols."""
        question = self.question
        line = None if question.line is None else question.line - 1
        if line is not None and line >= len(document.lines):
            raise bad_input(f"the file has only {len(document.lines)} lines.")
        if question.column is not None and line is not None:
            if question.column - 1 > len(document.line(line)):
                raise bad_input(f"line {line + 1} has only {len(document.line(line))} characters.")
            return [TextPosition(line, question.column - 1)]
        if not question.query:
            raise bad_input('say where: "line" and "column", or "query" with the name of a symbol.')
        if line is not None:
            return find_mention(document, question.query, line)
        try:
            result = await session.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}}, self.seconds)
        except UnsupportedError:
            result = ()
        named = match_symbols(outline(result, document, session.encoding), question.query, line)
        if named:
            return list(dict.fromkeys(each.spot for each in named))
        # A name that is used but not defined in the file is in no outline.
        return find_mention(document, question.query, line)

    async def _ask_at(self, session: LspSession, uri: str, spot: TextPosition, document: TextDocument) -> Any:
        action = self.question.action
        params: dict[str, Any] = {"textDocument": {"uri": uri}, "position": _position(spot, document, session)}
        if action == "references":
            params["context"] = {"includeDeclaration": True}
        if action == "rename":
            params["newName"] = self.question.new_name
        if action == "signature":
            with suppress(UnsupportedError):
                found = await session.ask(_METHODS[action], params, self.seconds)
                if found is not None and found.signatures:
                    return found
            # Servers have signatures only inside the brackets of a call; at a name, hover shows the same.
            return await session.ask(_METHODS["hover"], params, self.seconds)
        return await session.ask(_METHODS[action], params, self.seconds)

    def _describe_result(self, result: Any, texts: AnswerFiles) -> str:
        match self.question.action:
            case "definition":
                lines = list(map(texts.at, list_locations(result)))
                return format_list(lines, "definitions") if lines else "No definition found."
            case "references":
                every = list_locations(result)
                if not every:
                    return "No references found."
                inside = sorted((each for each in every if texts.is_inside(each.path)), key=_order)
                # Each line is read from its file, so only those that are shown.
                lines = list(map(texts.at, inside[:MOST_ITEMS]))
                return format_list(lines, "references", len(inside), len(every) - len(inside))
            case "rename":
                lines = list_changes(result, texts)
                if not lines:
                    return "No changes found for this rename."
                return _PROPOSED + format_list(lines, "changes")
            case _:
                return shorten(_description(result)) or f"No {self.question.action} information found."

    # Others

    async def _symbols(self) -> str:
        question = self.question
        if question.file is not None:
            source = await self.source()
            return await (await self.slot(source.path)).use(lambda session: self._outline(session, source))
        if not question.query:
            raise bad_input('symbols needs "file", or "query" to search the workspace.')
        found = await search(self, question.query, exact=False)
        lines = [f"{each.shown}  ({each.title})" for each in found.candidates]
        if not lines:
            return f"No symbols found for {question.query!r}."
        return format_list(lines, "symbols", outside=found.outside)

    async def _outline(self, session: LspSession, source: SourceFile) -> str:
        await session.sync()
        uri = await session.open(source)
        result = await session.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}}, self.seconds)
        found = outline(result, TextDocument(source.text), session.encoding)
        if self.question.query:
            found = match_symbols(found, self.question.query, None)
        if not found:
            return "No symbols found."
        lines = []
        for each in found:
            indent = "  " * each.depth
            lines.append(f"{indent}{each.spot} {each.kind} {each.names[-1]} {each.detail}".rstrip())
        return format_list(lines, "symbols")

    async def _actions_at(self, session: LspSession, source: SourceFile) -> str:
        question = self.question
        await session.sync()
        uri = await session.open(source)
        document = TextDocument(source.text)
        first = (question.line or 1) - 1
        last = (question.end_line or first + 1) - 1
        end_column = len(document.line(last))
        if question.end_column:
            end_column = question.end_column - 1
        start = TextPosition(first, (question.column or 1) - 1)
        end = TextPosition(last, end_column)
        found = await session.diagnostics(source, self.seconds) or []
        here = [each for each in found if each.range.start.line <= last and each.range.end.line >= first]
        params = {
            "textDocument": {"uri": uri},
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
        if not lines:
            return "No code actions found."
        return _PROPOSED + format_list(lines, "lines")


def _order(location: Location) -> tuple[str, int, int]:
    return str(location.path), location.line, location.units


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
    parts = []
    for each in ordered:
        parts.append("\n".join(filter(None, (each.label, prose(each.documentation)))))
    return "\n\n".join(parts)
