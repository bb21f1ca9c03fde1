"""Finding symbols by name, in one file or in the workspace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.capabilities.lsp.pool import ServerSlot
from retinue.capabilities.lsp.protocol import Encoding, TextDocument, TextPosition
from retinue.capabilities.lsp.session import LspSession, SourceFile, UnsupportedError, path_of
from retinue.capabilities.lsp.show import AnswerFiles, Location
from retinue.tools.base import ToolError
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from lsprotocol import types

    from retinue.capabilities.lsp.actions import Asking


_NAME_SEPARATORS = re.compile(r"\.|::|#|/")
_COMMENT_STARTS = ("#", "//", "/*", "*", "--", ";")
MAX_CANDIDATES = 400
MAX_NAME_LINES = 30
"""The name of a symbol is searched within this many lines of its beginning, because decorators come first."""
MAX_OUTLINED_FILES = 40


class DocumentSymbol(Struct, frozen=True):
    """A symbol of a file. `names` are the names of the symbols around it, and its own."""

    names: tuple[str, ...]
    kind: str
    spot: TextPosition
    detail: str = ""


def parts_of(query: str) -> tuple[str, ...]:
    """Split `Class.method`, `Class::method` or `method()` into names."""
    plain = query.strip().removesuffix("()")
    return tuple(filter(None, _NAME_SEPARATORS.split(plain)))


async def outline_of(session: LspSession, source: SourceFile, seconds: float) -> list[DocumentSymbol]:
    """Return the symbols of a file from the top, from either of the protocol's two shapes."""
    uri = await session.open(source)
    result = await session.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}}, seconds)
    symbols = _walk_symbols(result or (), (), TextDocument(source.text), session.encoding)
    return sorted(symbols, key=lambda symbol: (symbol.spot.line, symbol.spot.column))


def _walk_symbols(
    entries: Iterable[Any], above: tuple[str, ...], document: TextDocument, encoding: Encoding
) -> Iterator[DocumentSymbol]:
    for entry in entries:
        span = getattr(entry, "selection_range", None) or entry.location.range
        spot = document.to_spot(span.start.line, span.start.character, encoding)
        container = getattr(entry, "container_name", None)
        names = (*(above or ((container,) if container else ())), entry.name)
        # The older shape has the range of the whole symbol only, which begins before its name.
        if spot.column == 0 or not hasattr(entry, "selection_range"):
            spot = next(document.occurrences(entry.name, spot.line), spot)
        yield DocumentSymbol(names, kind_name(entry.kind), spot, getattr(entry, "detail", None) or "")
        yield from _walk_symbols(getattr(entry, "children", None) or (), names, document, encoding)


def match_symbols(symbols: Sequence[DocumentSymbol], query: str, line: int | None) -> list[DocumentSymbol]:
    """Return the symbols that match a query: by the complete path of names, or else by the last names. Of several,
    those on `line` (from 0) are preferred."""
    names = parts_of(query)
    if not names:
        return []
    matches = [symbol for symbol in symbols if symbol.names[-len(names) :] == names]
    if len(names) > 1:
        matches = [symbol for symbol in matches if symbol.names == names] or matches
    return [symbol for symbol in matches if symbol.spot.line == line] or matches


def find_mention(document: TextDocument, query: str, line: int | None) -> list[TextPosition]:
    """Return the first position of a name in a text, preferably outside of comments; empty if it is missing."""
    names = parts_of(query)
    if not names:
        return []
    spots = list(document.occurrences(names[-1], line))
    for spot in spots:
        if not document.line(spot.line).lstrip().startswith(_COMMENT_STARTS):
            return [spot]
    return spots[:1]


def _may_be(entry: Any, names: tuple[str, ...], path: Path) -> bool:
    """Return whether a result of `workspace/symbol` may be the symbol with these names."""
    if not names:
        return True
    *above, name = names
    if entry.name != name:
        return False
    containers = parts_of(entry.container_name or "")
    # The container may be a class, a module or missing, so a missing one matches.
    return not above or not containers or list(containers[-len(above) :]) == above or path.stem == above[-1]


def kind_name(kind: types.SymbolKind) -> str:
    """Return a kind as people write it: `enum member` for `EnumMember`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.name).lower()


class SymbolCandidate(Struct, frozen=True):
    """A symbol in the workspace, with the position of its name."""

    slot: ServerSlot
    path: Path
    spot: TextPosition
    shown: str
    title: str


async def search(asking: Asking, query: str, *, exact: bool) -> tuple[list[SymbolCandidate], int]:
    """Return the symbols that the servers find in the workspace, and the number of those outside. `exact`: only symbols
    of that name."""
    candidates: list[SymbolCandidate] = []
    outside = 0
    for slot in await asking.workspace_slots():
        try:
            inside, others = await slot.use(partial(_search_project, asking, slot, query, exact))
        except UnsupportedError:
            continue
        candidates += inside
        outside += others
    return candidates, outside


async def _search_project(
    asking: Asking, slot: ServerSlot, query: str, exact: bool, session: LspSession
) -> tuple[list[SymbolCandidate], int]:
    await session.sync()
    names = parts_of(query) or (query,)
    result = await session.ask("workspace/symbol", {"query": names[-1]}, asking.seconds)
    texts = AnswerFiles(asking.context, session.encoding)
    inside: list[tuple[Any, Path]] = []
    outside = 0
    for entry in result or ():
        path = path_of(entry.location.uri)
        if path is None or (exact and not _may_be(entry, parts_of(query), path)):
            continue
        if not texts.is_inside(path):
            outside += 1
        else:
            inside.append((entry, path))
    outside += max(len(inside) - MAX_CANDIDATES, 0)
    shown = inside[:MAX_CANDIDATES]
    candidates = await in_thread(lambda: [_candidate(slot, entry, path, texts) for entry, path in shown])
    if exact and len(names) > 1 and len(candidates) > 1:
        candidates = await _with_that_path(asking, session, query, candidates) or candidates
    return candidates, outside


def _candidate(slot: ServerSlot, entry: Any, path: Path, texts: AnswerFiles) -> SymbolCandidate:
    span = getattr(entry.location, "range", None)
    line, units = (0, 0) if span is None else (span.start.line, span.start.character)
    spot = texts.spot(Location(path, "", line, units))
    text = ""
    document = texts.document(path)
    if document is not None:
        spot = _name_from(document, entry.name, spot)
        text = document.line(spot.line).strip()
    names = (*parts_of(entry.container_name or ""), entry.name)
    shown = f"{texts.name(path)}:{spot}  {texts.short(text)}".rstrip()
    return SymbolCandidate(slot, path, spot, shown, f"{kind_name(entry.kind)} {'.'.join(names)}")


def _name_from(document: TextDocument, name: str, start: TextPosition) -> TextPosition:
    """Return the position of the name of a symbol that begins at `start`."""
    for line in range(start.line, min(start.line + MAX_NAME_LINES, len(document.lines))):
        for spot in document.occurrences(name, line):
            if (spot.line, spot.column) >= (start.line, start.column):
                return spot
    return start


async def _with_that_path(
    asking: Asking, session: LspSession, query: str, candidates: list[SymbolCandidate]
) -> list[SymbolCandidate]:
    """Return the candidates whose containers match the query, which only the outline of a file shows."""
    spots: dict[Path, set[TextPosition]] = {}
    for path in list(dict.fromkeys(candidate.path for candidate in candidates))[:MAX_OUTLINED_FILES]:
        try:
            symbols = await outline_of(session, await asking.source(str(path)), asking.seconds)
        except (ToolError, UnsupportedError):
            continue
        spots[path] = {symbol.spot for symbol in match_symbols(symbols, query, None)}
    return [candidate for candidate in candidates if candidate.spot in spots.get(candidate.path, ())]
