"""Symbols by name, in one file or in the whole workspace: which of those a server lists a model means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.capabilities.lsp.pool import Slot
from retinue.capabilities.lsp.positions import Encoding, TextDocument, TextPosition
from retinue.capabilities.lsp.session import LspSession, UnsupportedError, path_of
from retinue.capabilities.lsp.show import AnswerFiles, Location
from retinue.tools.arguments import ToolError
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from lsprotocol import types

    from retinue.capabilities.lsp.actions import Asking


_PARTS = re.compile(r"\.|::|#|/")
_COMMENTS = ("#", "//", "/*", "*", "--", ";")


class Named(Struct, frozen=True):
    """A symbol of a file. `names` are those of what it is in, and its own."""

    names: tuple[str, ...]
    kind: str
    spot: TextPosition
    detail: str = ""

    @property
    def depth(self) -> int:
        return len(self.names) - 1


class WorkspaceSymbol(Struct, frozen=True):
    """A symbol of the workspace. `line` and `units` are the server's."""

    names: tuple[str, ...]
    kind: str
    path: Path
    line: int
    units: int


def parts_of(query: str) -> tuple[str, ...]:
    """`Class.method`, `Class::method` and `method()` as names."""
    plain = query.strip().removesuffix("()")
    return tuple(part for part in _PARTS.split(plain) if part)


def outline(result: Any, document: TextDocument, encoding: Encoding) -> list[Named]:
    """The symbols of a file from the top, whichever of the two shapes a server gives."""
    found = list(_named(result or (), (), document, encoding))
    return sorted(found, key=lambda each: (each.spot.line, each.spot.column))


def _named(
    entries: Iterable[Any], above: tuple[str, ...], document: TextDocument, encoding: Encoding
) -> Iterator[Named]:
    for entry in entries:
        place = getattr(entry, "selection_range", None) or entry.location.range
        spot = document.to_spot(place.start.line, place.start.character, encoding)
        container = getattr(entry, "container_name", None)
        names = (*(above or ((container,) if container else ())), entry.name)
        if spot.column == 0 or not hasattr(entry, "selection_range"):  # the older shape has the whole range only
            spot = next(document.occurrences(entry.name, spot.line), spot)
        yield Named(names, kind_name(entry.kind), spot, getattr(entry, "detail", None) or "")
        yield from _named(getattr(entry, "children", None) or (), names, document, encoding)


def matching(symbols: Sequence[Named], query: str, line: int | None) -> list[Named]:
    """Those that a query means: the whole path of names if it has one, else the last ones. Of
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


def mentioned(document: TextDocument, query: str, line: int | None) -> TextPosition | None:
    """Where a name first stands in a text, in code rather than in a comment."""
    wanted = parts_of(query)
    if not wanted:
        return None
    spots = list(document.occurrences(wanted[-1], line))
    code = [spot for spot in spots if not document.line(spot.line).lstrip().startswith(_COMMENTS)]
    return next(iter(code or spots), None)


def in_workspace(result: Any, query: str | None = None) -> list[WorkspaceSymbol]:
    """What `workspace/symbol` gave; with a query, only what has that name."""
    wanted = parts_of(query) if query else ()
    found = []
    for entry in result or ():
        path = path_of(entry.location.uri)
        if path is None:
            continue
        names = (*parts_of(entry.container_name or ""), entry.name)
        if wanted and (entry.name != wanted[-1] or not _inside(wanted[:-1], names, path)):
            continue
        place = getattr(entry.location, "range", None)
        line, units = (place.start.line, place.start.character) if place is not None else (0, 0)
        found.append(WorkspaceSymbol(names, kind_name(entry.kind), path, line, units))
    return found


def _inside(above: tuple[str, ...], names: tuple[str, ...], path: Path) -> bool:
    """Servers differ in what they call the container: a class, a module, or nothing. Where they
    say nothing, the file may be what was meant."""
    if not above:
        return True
    return names[-1 - len(above) : -1] == above or (len(names) == 1) or path.stem == above[-1]


def kind_name(kind: types.SymbolKind) -> str:
    """`EnumMember` as people write it."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.name).lower()


MOST_FOUND = 400
_NEAR = 30
"""Lines in which the name of a symbol stands behind its beginning: decorators come before it."""
_MOST_OUTLINED = 40


class SymbolCandidate(Struct, frozen=True):
    """A symbol in the workspace, and where its name stands."""

    slot: Slot
    path: Path
    spot: TextPosition
    shown: str
    title: str


class SymbolSearch(Struct, frozen=True):
    candidates: list[SymbolCandidate]
    outside: int = 0


async def search(asking: Asking, query: str, *, exact: bool) -> SymbolSearch:
    """What the servers of the workspace know under a name; with `exact` of that name only."""
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
    if document is not None:
        spot = _name_from(document, found.names[-1], spot)
    line = document.line(spot.line).strip() if document is not None else ""
    shown = f"{texts.name(found.path)}:{spot}  {texts.short(line)}".rstrip()
    return SymbolCandidate(slot, found.path, spot, shown, f"{found.kind} {'.'.join(found.names)}")


def _name_from(document: TextDocument, name: str, start: TextPosition) -> TextPosition:
    """Where the name of a symbol stands that begins at `start`."""
    for line in range(start.line, min(start.line + _NEAR, len(document.lines))):
        for spot in document.occurrences(name, line):
            if (spot.line, spot.column) >= (start.line, start.column):
                return spot
    return start


async def _with_that_path(
    asking: Asking, session: LspSession, query: str, found: list[SymbolCandidate]
) -> list[SymbolCandidate] | None:
    """Those that stand in what the query names: the search knows names only, the outline of a
    file knows what is in what."""
    spots: dict[Path, set[TextPosition]] = {}
    for path in list(dict.fromkeys(each.path for each in found))[:_MOST_OUTLINED]:
        try:
            source = await asking.source(str(path))
            uri = await session.open(source)
            result = await session.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}}, asking.seconds)
        except (ToolError, UnsupportedError):
            continue
        symbols = outline(result, TextDocument(source.text), session.encoding)
        spots[path] = {each.spot for each in matching(symbols, query, None)}
    return [each for each in found if each.spot in spots.get(each.path, ())]
