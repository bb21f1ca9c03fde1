"""Symbols by name, in one file or in the whole workspace: the ones that a query means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.capabilities.lsp.pool import Slot
from retinue.capabilities.lsp.protocol import Encoding, TextDocument, TextPosition
from retinue.capabilities.lsp.session import LspSession, UnsupportedError, path_of
from retinue.capabilities.lsp.show import AnswerFiles, Location
from retinue.tools.base import ToolError
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from lsprotocol import types

    from retinue.capabilities.lsp.actions import Asking


_PARTS = re.compile(r"\.|::|#|/")
_COMMENTS = ("#", "//", "/*", "*", "--", ";")


class Named(Struct, frozen=True):
    """A symbol of a file. `names` are the names of the symbols around it, and its own."""

    names: tuple[str, ...]
    kind: str
    spot: TextPosition
    detail: str = ""

    @property
    def depth(self) -> int:
        return len(self.names) - 1


class WorkspaceSymbol(Struct, frozen=True):
    """A symbol of the workspace. `line` and `units` are its position in the server's terms."""

    names: tuple[str, ...]
    kind: str
    path: Path
    line: int
    units: int


def parts_of(query: str) -> tuple[str, ...]:
    """Split `Class.method`, `Class::method` or `method()` into names."""
    plain = query.strip().removesuffix("()")
    return tuple(filter(None, _PARTS.split(plain)))


def outline(result: Any, document: TextDocument, encoding: Encoding) -> list[Named]:
    """Return the symbols of a file from the top, from either of the protocol's two shapes."""
    found = list(_walk_symbols(result or (), (), document, encoding))
    return sorted(found, key=lambda each: (each.spot.line, each.spot.column))


def _walk_symbols(
    entries: Iterable[Any], above: tuple[str, ...], document: TextDocument, encoding: Encoding
) -> Iterator[Named]:
    for entry in entries:
        span = getattr(entry, "selection_range", None) or entry.location.range
        spot = document.to_spot(span.start.line, span.start.character, encoding)
        container = getattr(entry, "container_name", None)
        outer = above
        if not above and container:
            outer = (container,)
        names = (*outer, entry.name)
        # The older shape has the range of the whole symbol only, which begins before its name.
        if spot.column == 0 or not hasattr(entry, "selection_range"):
            spot = next(document.occurrences(entry.name, spot.line), spot)
        yield Named(names, kind_name(entry.kind), spot, getattr(entry, "detail", None) or "")
        yield from _walk_symbols(getattr(entry, "children", None) or (), names, document, encoding)


def match_symbols(symbols: Sequence[Named], query: str, line: int | None) -> list[Named]:
    """Return the symbols that a query means: by the whole path of names if one has it, else by the last names. Of
    several, those on `line` (from 0) if there are any."""
    wanted = parts_of(query)
    if not wanted:
        return []
    found = [each for each in symbols if each.names[-len(wanted) :] == wanted]
    whole = [each for each in found if each.names == wanted]
    if whole and len(wanted) > 1:
        found = whole
    on_line = [each for each in found if each.spot.line == line]
    return on_line or found


def find_mention(document: TextDocument, query: str, line: int | None) -> list[TextPosition]:
    """Return the first position of a name in a text, in code rather than in a comment; empty where it is missing."""
    wanted = parts_of(query)
    if not wanted:
        return []
    spots = list(document.occurrences(wanted[-1], line))
    for spot in spots:
        if not document.line(spot.line).lstrip().startswith(_COMMENTS):
            return [spot]
    return spots[:1]


def in_workspace(result: Any, query: str | None = None) -> list[WorkspaceSymbol]:
    """Return the symbols of an answer to `workspace/symbol`; with a query, only those of that name."""
    wanted = parts_of(query) if query else ()
    found = []
    for entry in result or ():
        path = path_of(entry.location.uri)
        if path is None:
            continue
        names = (*parts_of(entry.container_name or ""), entry.name)
        if wanted and (entry.name != wanted[-1] or not _inside(wanted[:-1], names, path)):
            continue
        span = getattr(entry.location, "range", None)
        line = units = 0
        if span is not None:
            line, units = span.start.line, span.start.character
        found.append(WorkspaceSymbol(names, kind_name(entry.kind), path, line, units))
    return found


def _inside(above: tuple[str, ...], names: tuple[str, ...], path: Path) -> bool:
    """Return whether a symbol may be inside of what a query names."""
    if not above:
        return True
    # Servers name a class, a module or nothing as the container, so a missing one is no reason to leave a symbol out.
    return names[-1 - len(above) : -1] == above or (len(names) == 1) or path.stem == above[-1]


def kind_name(kind: types.SymbolKind) -> str:
    """Return a kind as people write it: `enum member` for `EnumMember`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.name).lower()


MOST_FOUND = 400
_NEAR = 30
"""Within this many lines after the beginning of a symbol its name follows; decorators come before it."""
_MOST_OUTLINED = 40


class SymbolCandidate(Struct, frozen=True):
    """A symbol in the workspace, with the position of its name."""

    slot: Slot
    path: Path
    spot: TextPosition
    shown: str
    title: str


class SymbolSearch(Struct, frozen=True):
    candidates: list[SymbolCandidate]
    outside: int = 0


async def search(asking: Asking, query: str, *, exact: bool) -> SymbolSearch:
    """Return the symbols that the servers of the workspace find; with `exact`, only those of that name."""
    found: list[SymbolCandidate] = []
    outside = 0
    for slot in await asking.workspace_slots():
        try:
            more = await slot.use(partial(_in_project, asking, slot, query, exact))
        except UnsupportedError:
            continue
        found += more.candidates
        outside += more.outside
    return SymbolSearch(found, outside)


async def _in_project(asking: Asking, slot: Slot, query: str, exact: bool, session: LspSession) -> SymbolSearch:
    await session.sync()
    names = parts_of(query) or (query,)
    result = await session.ask("workspace/symbol", {"query": names[-1]}, asking.seconds)
    texts = AnswerFiles(asking.context, session.encoding)
    every = in_workspace(result, query if exact else None)
    inside = [each for each in every if texts.is_inside(each.path)][:MOST_FOUND]
    found = await in_thread(lambda: [_candidate(slot, each, texts) for each in inside])
    if exact and len(names) > 1 and len(found) > 1:
        found = await _with_that_path(asking, session, query, found) or found
    return SymbolSearch(found, len(every) - len(inside))


def _candidate(slot: Slot, found: WorkspaceSymbol, texts: AnswerFiles) -> SymbolCandidate:
    document = texts.document(found.path)
    spot = texts.spot(Location(found.path, "", found.line, found.units))
    line = ""
    if document is not None:
        spot = _name_from(document, found.names[-1], spot)
        line = document.line(spot.line).strip()
    shown = f"{texts.name(found.path)}:{spot}  {texts.short(line)}".rstrip()
    return SymbolCandidate(slot, found.path, spot, shown, f"{found.kind} {'.'.join(found.names)}")


def _name_from(document: TextDocument, name: str, start: TextPosition) -> TextPosition:
    """Return the position of the name of a symbol that begins at `start`."""
    for line in range(start.line, min(start.line + _NEAR, len(document.lines))):
        for spot in document.occurrences(name, line):
            if (spot.line, spot.column) >= (start.line, start.column):
                return spot
    return start


async def _with_that_path(
    asking: Asking, session: LspSession, query: str, found: list[SymbolCandidate]
) -> list[SymbolCandidate] | None:
    """Return the symbols inside of what the query names. A search knows names only; the outline of a file shows what
    is inside of what."""
    spots: dict[Path, set[TextPosition]] = {}
    for path in list(dict.fromkeys(each.path for each in found))[:_MOST_OUTLINED]:
        try:
            source = await asking.source(str(path))
            uri = await session.open(source)
            result = await session.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}}, asking.seconds)
        except (ToolError, UnsupportedError):
            continue
        symbols = outline(result, TextDocument(source.text), session.encoding)
        spots[path] = {each.spot for each in match_symbols(symbols, query, None)}
    return [each for each in found if each.spot in spots.get(each.path, ())]
