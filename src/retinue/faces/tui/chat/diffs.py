"""What a call changes in a file, as lines with signs that need no colour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from retinue.core.messages import ToolCall
from retinue.core.toolnames import canonical
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.chat.clean import clean

_OLD = ("old", "old_string", "oldText", "old_text", "old_str")
_NEW = ("new", "new_string", "newText", "new_text", "new_str")
_CONTENT = ("content", "file_text", "text")
MOST_LINES = 400


def changes_files(call: ToolCall) -> bool:
    return bool({"edit", "write"} & set(canonical(call.name)))


def diff_of(call: ToolCall) -> Text | None:
    """What an edit or a write asks for; None for other calls and for what is not understood."""
    names = canonical(call.name)
    if "edit" in names:
        pairs = list(_pairs(call.arguments))
        return styled("\n".join(line for old, new in pairs for line in _lines(old, new))) if pairs else None
    if "write" in names:
        content = _first(call.arguments, _CONTENT)
        return None if content is None else styled("\n".join(f"+{line}" for line in content.splitlines()))
    return None


def diff(old: str, new: str) -> Text:
    return styled("\n".join(_lines(old, new)))


def styled(text: str) -> Text:
    """Lines of a diff in the colours of their signs; other lines as they are."""
    rows = clean(text).split("\n")
    drawn = Text()
    for number, row in enumerate(rows[:MOST_LINES]):
        style = STYLES["success"] if row.startswith("+") else STYLES["error"] if row.startswith("-") else STYLES["dim"]
        drawn.append(("\n" if number else "") + row, style)
    if len(rows) > MOST_LINES:
        drawn.append(f"\n… {len(rows) - MOST_LINES:,} more lines", STYLES["dim"])
    return drawn


def _lines(old: str, new: str) -> list[str]:
    from difflib import unified_diff

    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]


def _pairs(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    edits = arguments.get("edits")
    for each in edits if isinstance(edits, list) else [arguments]:
        if isinstance(each, Mapping):
            old, new = _first(each, _OLD), _first(each, _NEW)
            if old is not None and new is not None:
                yield old, new


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((arguments[name] for name in names if isinstance(arguments.get(name), str)), None)
