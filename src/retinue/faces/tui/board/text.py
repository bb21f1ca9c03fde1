"""Text that fits: one line, no control characters, never wider than it may be."""

from __future__ import annotations

import re

from rich.cells import cell_len, set_cell_size
from rich.text import Text

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")


def one_line(text: str) -> str:
    """What an agent said or was called, as one line that draws nothing but itself."""
    return " ".join(_CONTROL.sub(" ", _ESCAPES.sub("", text)).split())


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
