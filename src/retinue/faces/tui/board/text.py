"""Text that fits: no control characters, tabs and escapes, never wider than it may be.

Text of models, tools and people as the screen may show it, and diffs whose signs need no colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len, get_character_cell_size, set_cell_size
from rich.text import Text

from retinue.core.messages import ToolCall
from retinue.core.toolnames import canonical
from retinue.faces.tui.board.marks import STYLES

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]+"
)
"""What shows nothing, turns the direction of writing, joins signs in ways terminals disagree
about, or cannot be written at all (halves of surrogate pairs)."""
_NEW_LINE = re.compile(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")
_WORDS = re.compile(r"\S+|\s+")
TAB = 4


class _Sizes(dict[str, int]):
    def __missing__(self, sign: str) -> int:
        size = self[sign] = get_character_cell_size(sign)
        return size


_SIZES = _Sizes()
Row = Text | tuple[str, str]
"""A line: styled text, or where there may be very many of them a plain text and its style."""


def text_of(row: Row) -> Text:
    """A copy that may be changed."""
    return row.copy() if isinstance(row, Text) else Text(*row)


def plain_of(row: Row) -> str:
    return row.plain if isinstance(row, Text) else row[0]


def one_line(text: str) -> str:
    """What an agent said or was called, as one line that draws nothing but itself."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(_CONTROL.sub(" ", _UNSEEN.sub("", _ESCAPES.sub("", text))).split())


def clean_lines(text: str) -> list[str]:
    """The lines of a text, each of which draws nothing but itself; indentation stays."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    found = []
    for line in _NEW_LINE.split(text):
        if not (line.isascii() and line.isprintable()):
            line = _CONTROL.sub("", _UNSEEN.sub("", line.expandtabs(TAB)))
        found.append(line.rstrip())
    return found


def wrap(text: str, width: int) -> list[str]:
    """The lines of a text, folded at words where they are too long for `width` cells."""
    return [piece for line in clean_lines(text) for piece in _fold(line, max(width, 2))]


def _fold(line: str, width: int) -> Iterator[str]:
    if line.isascii():
        yield from _fold_ascii(line, width)
    elif 2 * len(line) <= width or _cells(line) <= width:
        yield line
    else:
        yield from _fold_wide(line, width)


def _fold_ascii(line: str, width: int) -> Iterator[str]:
    start = 0
    while len(line) - start > width:
        cut = line.rfind(" ", start, start + width + 1)
        if cut <= start:
            yield line[start : start + width]
            start += width
        else:
            yield line[start:cut]
            start = cut + 1
    yield line[start:]


def _fold_wide(line: str, width: int) -> Iterator[str]:
    now, used = "", 0
    for word in _WORDS.findall(line):
        cells = _cells(word)
        if used + cells <= width:
            now, used = now + word, used + cells
            continue
        if now.strip():
            yield now.rstrip()
        now, used = "", 0
        if not word.isspace():
            *whole, now = _chop(word, width)
            yield from whole
            used = _cells(now)
    yield now.rstrip()


def _chop(word: str, width: int) -> Iterator[str]:
    start = used = 0
    for at, sign in enumerate(word):
        cells = _SIZES[sign]
        if used + cells > width:
            yield word[start:at]
            start, used = at, 0
        used += cells
    yield word[start:]


def _cells(text: str) -> int:
    """Sign by sign, which is never less than what the terminal is told, and much quicker."""
    return sum(map(_SIZES.__getitem__, text))


def fit(text: str, width: int) -> str:
    """At most `width` cells, with an ellipsis where something is missing; a wide character is
    never cut in half."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else "…"


def fit_line(line: Text, width: int) -> Text:
    """The same for styled text, in place."""
    line.truncate(max(width, 0), overflow="ellipsis")
    return line


def exact(line: Text, width: int) -> Text:
    """Exactly `width` cells: cut or filled up with blanks, in place."""
    fit_line(line, width)
    missing = width - line.cell_len
    if missing > 0:
        line.append(" " * missing)
    return line


_SIMPLE_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    """The same lines, without anything that would move the cursor, change colours or reverse the
    direction of what follows. Tabs become spaces."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _SIMPLE_ESCAPES.sub("", text)
    return _UNSAFE.sub("", text).expandtabs(TAB)


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
