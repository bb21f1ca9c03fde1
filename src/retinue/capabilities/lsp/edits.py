"""Changes that a server proposes, as text: nothing here changes a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retinue.capabilities.lsp.session import path_of
from retinue.capabilities.lsp.show import Place, Texts
from retinue.tools.paths import visible

_SHOWN = 160


def proposed(edit: Any, texts: Texts) -> list[str]:
    """One line for each replacement of a workspace edit."""
    if edit is None:
        return []
    lines = []
    for path, change in _changes(edit):
        start, end = change.range.start, change.range.end
        where = texts.at(Place(path, "", start.line, start.character), with_line=False)
        old = _old(texts, path, change) if start.line == end.line else f"lines {start.line + 1}–{end.line + 1}"
        lines.append(f"{where}  {old} → {_brief(change.new_text)}")
    lines += [f"{each.kind} {visible(each.uri)}" for each in edit.document_changes or () if hasattr(each, "kind")]
    return lines


def _changes(edit: Any) -> Iterator[tuple[Path | None, Any]]:
    for uri, changes in (edit.changes or {}).items():
        for change in changes:
            yield path_of(uri), change
    for document in edit.document_changes or ():
        for change in getattr(document, "edits", ()):
            if hasattr(change, "new_text"):
                yield path_of(document.text_document.uri), change


def _old(texts: Texts, path: Path | None, change: Any) -> str:
    document = texts.document(path) if path is not None else None
    if document is None:
        return "…"
    start = texts.spot(Place(path, "", change.range.start.line, change.range.start.character))
    end = texts.spot(Place(path, "", change.range.end.line, change.range.end.character))
    return _brief(document.line(start.line)[start.column : end.column])


def _brief(text: str) -> str:
    return visible(repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"))
