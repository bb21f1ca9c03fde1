"""Cells of a Jupyter notebook: replaced, inserted or deleted, and everything else in the file as it was."""

from __future__ import annotations

import json
from typing import Any

from retinue.core.lean import dataclass
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import Properties

PROPERTIES: Properties = {
    "cell_id": {"type": "string"},
    "cell_number": {"type": "integer"},
    "new_source": {"type": "string"},
    "cell_type": {"type": "string", "enum": ["code", "markdown"]},
    "edit_mode": {"type": "string", "enum": ["replace", "insert", "delete"]},
}


@dataclass(frozen=True, slots=True)
class CellChange:
    """`cell` is an id or a number from 0; None means the first. An insertion goes after it."""

    mode: str
    cell: str | None
    source: str
    kind: str | None


def read_cell_change(given: Arguments) -> CellChange | None:
    """The change of a cell that a call asks for; None for a call about text."""
    mode = given.optional_text("edit_mode") or "replace"
    source = given.find("new_source")
    if source is None and mode != "delete":
        return None
    number = given.whole("cell_number")
    cell = given.optional_text("cell_id") or (None if number is None else str(number))
    return CellChange(mode, cell, source or "", given.optional_text("cell_type"))


def change_notebook(data: bytes | None, change: CellChange, shown: str) -> bytes:
    """The notebook with that change made. Raise ToolError for what is no notebook or has no such cell."""
    try:
        book: Any = json.loads(data or b"")
        cells = book["cells"]
    except (ValueError, KeyError, TypeError):
        raise ToolError(f"{shown} is not a Jupyter notebook. Use old_string and new_string for text.") from None
    place = _place(cells, change.cell, shown)
    lines = change.source.splitlines(keepends=True)
    if change.mode == "delete":
        del cells[place]
    elif change.mode == "insert":
        cells.insert(place + 1 if change.cell is not None else 0, _cell(change.kind or "code", lines))
    else:
        cell = cells[place]
        cell["source"] = lines
        if change.kind not in (None, cell.get("cell_type")):
            cells[place] = {**_cell(change.kind or "code", lines), **({"id": cell["id"]} if "id" in cell else {})}
        elif cell.get("cell_type") == "code":
            cell["outputs"], cell["execution_count"] = [], None  # what it printed is not of this source
    return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode()


def _place(cells: list[Any], wanted: str | None, shown: str) -> int:
    if wanted is None:
        return 0
    for index, cell in enumerate(cells):
        if cell.get("id") == wanted:
            return index
    number = wanted.removeprefix("cell-")
    if number.isdigit() and int(number) < len(cells):
        return int(number)
    raise ToolError(f"{shown} has no cell {wanted!r}. It has {len(cells)} cells, numbered from 0.")


def _cell(kind: str, lines: list[str]) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": lines}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell
