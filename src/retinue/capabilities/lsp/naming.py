"""Symbols of a whole workspace by their names, without anyone saying in which file they are."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.capabilities.lsp.pool import Slot
from retinue.capabilities.lsp.positions import Document, Spot
from retinue.capabilities.lsp.session import Session, UnsupportedError
from retinue.capabilities.lsp.show import Place, Texts
from retinue.capabilities.lsp.symbols import Found, in_workspace, matching, outline, parts_of
from retinue.core.lean import dataclass
from retinue.tools.arguments import ToolError
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from retinue.capabilities.lsp.actions import Asking

MOST_FOUND = 400
_NEAR = 30
"""Lines in which the name of a symbol stands behind its beginning: decorators come before it."""
_MOST_OUTLINED = 40


@dataclass(frozen=True, slots=True)
class Candidate:
    """A symbol in the workspace, and where its name stands."""

    slot: Slot
    path: Path
    spot: Spot
    shown: str
    title: str


@dataclass(frozen=True, slots=True)
class Search:
    candidates: list[Candidate]
    outside: int = 0


async def search(asking: Asking, query: str, *, exact: bool) -> Search:
    """What the servers of the workspace know under a name; with `exact` of that name only."""
    found: list[Candidate] = []
    outside = 0
    for slot in await asking.workspace_slots():
        try:
            more = await slot.use(partial(_in_project, asking, slot, query, exact))
        except UnsupportedError:
            continue
        found += more.candidates
        outside += more.outside
    return Search(found, outside)


async def _in_project(asking: Asking, slot: Slot, query: str, exact: bool, session: Session) -> Search:
    await session.sync()
    names = parts_of(query) or (query,)
    result = await session.ask("workspace/symbol", {"query": names[-1]}, asking.seconds)
    texts = Texts(asking.context, session.encoding)
    every = in_workspace(result, query if exact else None)
    inside = [each for each in every if texts.is_inside(each.path)][:MOST_FOUND]
    found = await in_thread(lambda: [_candidate(slot, each, texts) for each in inside])
    if exact and len(names) > 1 and len(found) > 1:
        found = await _with_that_path(asking, session, query, found) or found
    return Search(found, len(every) - len(inside))


def _candidate(slot: Slot, found: Found, texts: Texts) -> Candidate:
    document = texts.document(found.path)
    spot = texts.spot(Place(found.path, "", found.line, found.units))
    if document is not None:
        spot = _name_from(document, found.names[-1], spot)
    line = document.line(spot.line).strip() if document is not None else ""
    shown = f"{texts.name(found.path)}:{spot}  {texts.short(line)}".rstrip()
    return Candidate(slot, found.path, spot, shown, f"{found.kind} {'.'.join(found.names)}")


def _name_from(document: Document, name: str, start: Spot) -> Spot:
    """Where the name of a symbol stands that begins at `start`."""
    for line in range(start.line, min(start.line + _NEAR, len(document.lines))):
        for spot in document.occurrences(name, line):
            if (spot.line, spot.column) >= (start.line, start.column):
                return spot
    return start


async def _with_that_path(
    asking: Asking, session: Session, query: str, found: list[Candidate]
) -> list[Candidate] | None:
    """Those that stand in what the query names: the search knows names only, the outline of a
    file knows what is in what."""
    spots: dict[Path, set[Spot]] = {}
    for path in list(dict.fromkeys(each.path for each in found))[:_MOST_OUTLINED]:
        try:
            source = await asking.source(str(path))
            uri = await session.open(source)
            result = await session.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}}, asking.seconds)
        except (ToolError, UnsupportedError):
            continue
        symbols = outline(result, Document(source.text), session.encoding)
        spots[path] = {each.spot for each in matching(symbols, query, None)}
    return [each for each in found if each.spot in spots.get(each.path, ())]
