"""Text that fits the screen: without control characters and escapes, never wider than allowed; and diffs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.containers import Lines
from rich.text import Text

from retinue.app.text import indent
from retinue.core.messages import ToolCall
from retinue.core.tool_names import canonical

_ESCAPE_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])"
)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Characters that are invisible, change the writing direction, join others in ways that differ between terminals, or
# cannot be encoded (halves of surrogate pairs).
_INVISIBLE_CHARACTERS = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]+"
)
_NEW_LINE = re.compile(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")
_UNSAFE_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
TAB_CELLS = 4
# Styles by meaning. The app replaces them with those of its theme.
STYLES = {
    "accent": "bold cyan",
    "success": "green",
    "warning": "yellow",
    "error": "bold red",
    "dim": "dim",
    "": "",
}
# Styles by the first sign of a line of a diff.
DIFF_STYLES = {"+": "success", "-": "error"}


# Used only to measure; its output is discarded.
_CONSOLE = Console(quiet=True, width=200)
# A line: styled text, or a plain text with its style, which takes less memory.
Row = Text | tuple[str, str]


def text_of(row: Row) -> Text:
    """Return a copy that may be changed."""
    if isinstance(row, Text):
        return row.copy()
    return Text(*row)


def plain_of(row: Row) -> str:
    if isinstance(row, Text):
        return row.plain
    return row[0]


def one_line(text: str) -> str:
    """Return the text of an agent on one line, without any control character."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(
        _CONTROL_CHARACTERS.sub(" ", _INVISIBLE_CHARACTERS.sub("", _ESCAPE_SEQUENCES.sub("", text))).split()
    )


def clean_lines(text: str) -> list[str]:
    """Return the lines of a text without control characters. Indentation is kept."""
    if "\x1b" in text:
        text = _ESCAPE_SEQUENCES.sub("", text)
    lines = []
    for line in _NEW_LINE.split(text):
        if not (line.isascii() and line.isprintable()):
            line = _CONTROL_CHARACTERS.sub("", _INVISIBLE_CHARACTERS.sub("", line.expandtabs(TAB_CELLS)))
        lines.append(line.rstrip())
    return lines


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text, folded at words if they are longer than `width` cells."""
    lines: list[str] = []
    width = max(width, 2)
    for line in clean_lines(text):
        if 2 * len(line) <= width:
            lines.append(line)
        elif line.isascii():
            # Much faster than Rich, and sufficient for nearly all lines of a transcript.
            lines += textwrap.wrap(line, width, break_on_hyphens=False, expand_tabs=False)
        else:
            lines += [piece.plain.rstrip() for piece in wrap_text(Text(line), width)]
    return lines


def wrap_text(text: Text, width: int) -> Lines:
    """Return styled text folded at words."""
    return text.wrap(_CONSOLE, max(width, 2), overflow="fold")


def fit(text: str, width: int) -> str:
    """Return at most `width` cells, with an ellipsis if text was cut. A wide character is never split."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def fit_line(line: Text, width: int) -> Text:
    """Cut styled text to `width` cells, in place."""
    line.truncate(max(width, 0), overflow="ellipsis")
    return line


def exact(line: Text, width: int) -> Text:
    """Cut or pad styled text to exactly `width` cells, in place."""
    fit_line(line, width)
    missing = width - line.cell_len
    if missing > 0:
        line.append(" " * missing)
    return line


def chop(line: Text, width: int) -> list[Text]:
    """Return a line as rows of at most `width` cells, cut anywhere, because blanks in code are significant."""
    if line.cell_len <= width:
        return [line]
    ends, at = [], 0
    for piece in chop_cells(line.plain, width):
        at += len(piece)
        ends.append(at)
    return list(line.divide(ends[:-1]))


def clean(text: str) -> str:
    """Return the lines without characters that move the cursor, change colours or reverse the direction of text. Tabs
    become spaces."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPE_SEQUENCES.sub("", text)
    return _UNSAFE_CHARACTERS.sub("", text).expandtabs(TAB_CELLS)


def cut_lines(text: str, lines: int, characters: int) -> tuple[str, int]:
    """Return the beginning of a text, and the number of lines that were cut off."""
    short = text[:characters]
    rows = short.split("\n")
    shown = "\n".join(rows[:lines])
    return shown, text.count("\n") - shown.count("\n")


def ends(text: str, most: int) -> tuple[str, int, str]:
    """Return the first and last lines of a text with more than `most` lines, and the number of lines between them. A
    shorter text is returned whole."""
    rows = text.split("\n")
    if len(rows) <= most:
        return text, 0, ""
    half = most // 2
    return "\n".join(rows[:half]), len(rows) - 2 * half, "\n".join(rows[-half:])


_OLD_TEXT_ARGUMENTS = ("old", "old_string", "oldText", "old_text", "old_str")
_NEW_TEXT_ARGUMENTS = ("new", "new_string", "newText", "new_text", "new_str")
_CONTENT_ARGUMENTS = ("content", "file_text", "text")
MAX_DIFF_LINES = 400


def changes_files(call: ToolCall) -> bool:
    return bool({"edit", "write"} & set(canonical(call.name)))


def diff_of(call: ToolCall) -> Text | None:
    """Return the change that an edit or a write requests; None for other calls and for unknown arguments."""
    names = canonical(call.name)
    lines: list[str] | None = None
    if "edit" in names:
        for old, new in _pairs(call.arguments):
            lines = (lines or []) + _lines(old, new)
    elif "write" in names:
        content = _first(call.arguments, _CONTENT_ARGUMENTS)
        if content is not None:
            lines = indent(content.splitlines(), "+")
    if lines is None:
        return None
    return styled("\n".join(lines))


def diff(old: str, new: str) -> Text:
    return styled("\n".join(_lines(old, new)))


def styled(text: str) -> Text:
    """Return the lines of a diff in the colours of their signs."""
    rows = clean(text).split("\n")
    drawn = Text()
    for number, row in enumerate(rows[:MAX_DIFF_LINES]):
        if number:
            row = f"\n{row}"
        drawn.append(row, STYLES[DIFF_STYLES.get(row.strip("\n")[:1], "dim")])
    if len(rows) > MAX_DIFF_LINES:
        drawn.append(f"\n… {len(rows) - MAX_DIFF_LINES:,} more lines", STYLES["dim"])
    return drawn


def _lines(old: str, new: str) -> list[str]:
    from difflib import unified_diff

    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]


def _pairs(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    edits = arguments.get("edits")
    if not isinstance(edits, list):
        edits = [arguments]
    for edit in edits:
        if isinstance(edit, Mapping):
            old, new = _first(edit, _OLD_TEXT_ARGUMENTS), _first(edit, _NEW_TEXT_ARGUMENTS)
            if old is not None and new is not None:
                yield old, new


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    return None
