"""Text that agents chose, as people may see it on a terminal, and numbers that people type."""

from __future__ import annotations

import argparse
import re
import sys

_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys, takes for a new line, or lets turn the text around."""


def plain(text: str) -> str:
    """The same text; what would move the cursor, change colours or hide something is written out."""
    if not _HARMFUL.search(text):
        return text
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """On one line, cut to `width`."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def for_reader(text: str) -> str:
    """For stdout: as it is for a program, harmless where a person reads it."""
    return plain(text) if sys.stdout.isatty() else text


def count(value: str) -> int:
    """For argparse: a whole number, 0 or more."""
    if not value.isascii() or not value.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, not '{value}'")
    return int(value)


def positive(value: str) -> float:
    """For argparse: a number above 0."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not '{value}'")
    return number
