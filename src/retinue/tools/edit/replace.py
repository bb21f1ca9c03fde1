"""Exact replacement in a text, and the reasons why one cannot be done."""

from __future__ import annotations

import re
import unicodedata

from retinue.core.lean import dataclass
from retinue.tools.errors import ToolError

_SHOWN_PLACES = 10


@dataclass(frozen=True, slots=True)
class Edit:
    old: str
    new: str
    every: bool = False


def apply(text: str, edits: list[Edit], shown: str) -> str:
    """`text` after all edits, each applied to what the one before it left. Raises ToolError,
    naming the edit, when one does not match exactly once (or at all, with `every`)."""
    for number, edit in enumerate(edits, 1):
        label = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        found = fit_ends(edit, text)
        first = text.find(found.old)
        if first < 0:
            raise ToolError(f"{label}the old text is not in {shown}.{hint(text, edit)}{_none_made(edits)}")
        if not edit.every and text.find(found.old, first + 1) >= 0:
            raise ToolError(f"{label}{_ambiguous(text, found.old, shown)}{_none_made(edits)}")
        text = text.replace(found.old, found.new)
    return text


def fit_ends(edit: Edit, text: str) -> Edit:
    """The edit with the line ends of the text it goes into. A text with only one kind has been
    made plain already; in a mixed one the spelling that occurs is taken."""
    plain = Edit(edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n"), edit.every)
    if "\r\n" not in text:
        return plain
    if "\r\n" not in edit.old and edit.old in text:
        return edit
    wide = Edit(plain.old.replace("\n", "\r\n"), plain.new.replace("\n", "\r\n"), edit.every)
    return wide if wide.old in text else plain


def _none_made(edits: list[Edit]) -> str:
    return " None of the edits was made." if len(edits) > 1 else ""


def _ambiguous(text: str, old: str, shown: str) -> str:
    lines: list[str] = []
    start = text.find(old)
    while start >= 0 and len(lines) < _SHOWN_PLACES:
        lines.append(str(text.count("\n", 0, start) + 1))
        start = text.find(old, start + 1)
    more = ", ..." if start >= 0 else ""
    return (
        f"the old text is not unique in {shown} (lines {', '.join(lines)}{more}). "
        'Add surrounding lines to make it unique, or set "all" to replace every one.'
    )


def hint(text: str, edit: Edit) -> str:
    """What the model probably meant: the same lines but for blanks, or the most similar line."""
    if edit.new and edit.new in text:
        line = text.count("\n", 0, text.find(edit.new)) + 1
        return f" The new text is already there, at line {line}: perhaps the edit was made before."
    lines = text.split("\n")
    wanted = [_folded(line) for line in edit.old.strip("\n").split("\n")]
    start = _find_lines([_folded(line) for line in lines], wanted)
    if start is not None:
        actual = "\n".join(lines[start : start + len(wanted)])
        return (
            f" Lines {start + 1}-{start + len(wanted)} differ only in whitespace or quotes. The file has:\n{actual}\n"
        )
    if re.match(r"\s*\d+\t", edit.old):
        return " It seems to include the line numbers that read shows; leave them out."
    return _nearest(lines, edit.old)


def _folded(line: str) -> str:
    """A line without what models get wrong most: blanks, and typographic for plain characters."""
    line = unicodedata.normalize("NFKC", line).translate(_PLAIN)
    return "".join(line.split())


_PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-"})


def _find_lines(lines: list[str], wanted: list[str]) -> int | None:
    if not any(wanted):
        return None
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
            return start
    return None


def _nearest(lines: list[str], old: str) -> str:
    import difflib

    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")
    if not wanted or len(wanted) > 500:
        return " Read the file and copy the text exactly."
    stripped = [line.strip() for line in lines[:5000] if len(line) <= 500]
    close = difflib.get_close_matches(wanted, stripped, n=1, cutoff=0.7)
    if not close:
        return " Nothing like it was found. Read the file and copy the text exactly."
    number = next(number for number, line in enumerate(lines, 1) if line.strip() == close[0])
    return f" The most similar line is {number}:\n{lines[number - 1]}\nRead around it and copy the text exactly."
