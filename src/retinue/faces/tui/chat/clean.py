"""Text of models, tools and people as the screen may show it."""

from __future__ import annotations

import re

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
