"""Text of models, tools and people as the screen may show it, and diffs whose signs need no colour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from retinue.core.messages import ToolCall
from retinue.core.toolnames import canonical
from retinue.faces.tui.board.marks import STYLES

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
TAB = 4


def clean(text: str) -> str:
    """The same lines, without anything that would move the cursor, change colours or reverse the
    direction of what follows. Tabs become spaces."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROL.sub("", text).expandtabs(TAB)


def clip(text: str, lines: int, characters: int) -> tuple[str, int]:
    """The beginning of a text, and how many lines are missing from it."""
    short = text[:characters]
    rows = short.split("\n")
    shown = "\n".join(rows[:lines])
    return shown, text.count("\n") - shown.count("\n")


def ends(text: str, most: int) -> tuple[str, int, str]:
    """The first and the last lines of a text of more than `most`, and how many are between them;
    a shorter one whole."""
    rows = text.split("\n")
    if len(rows) <= most:
        return text, 0, ""
    half = most // 2
    return "\n".join(rows[:half]), len(rows) - 2 * half, "\n".join(rows[-half:])


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
