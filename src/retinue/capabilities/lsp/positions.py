"""Positions in a text: from 1 for people and models, from 0 and in the server's units for servers.

A column counts characters. Servers count UTF-16 units unless something else was agreed on, so the columns differ after
an emoji.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from msgspec import Struct

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LINE_END = re.compile(r"\r\n|\n|\r")


class TextPosition(Struct, frozen=True):
    """A position from 0, its column in characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line + 1}:{self.column + 1}"


class TextDocument:
    """The text of a file, in lines as the protocol counts them: a form feed ends no line."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        return _LINE_END.split(self.text)

    def line(self, number: int) -> str:
        return self.lines[number] if 0 <= number < len(self.lines) else ""

    def to_units(self, spot: TextPosition, encoding: Encoding) -> int:
        """Return the column of a position in the server's units, at most the end of its line."""
        return _units(self.line(spot.line)[: spot.column], encoding)

    def to_spot(self, line: int, units: int, encoding: Encoding) -> TextPosition:
        """Return the position that a server means. One inside of a character is moved before it."""
        text = self.line(line)
        if encoding == "utf-32" or text.isascii():
            return TextPosition(line, min(units, len(text)))
        column = 0
        for character in text:
            units -= _units(character, encoding)
            if units < 0:
                break
            column += 1
        return TextPosition(line, column)

    def occurrences(self, word: str, line: int | None = None) -> Iterator[TextPosition]:
        """Yield the positions of `word` as a whole word, comments and strings included, from the top."""
        if not word:
            return
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        numbers = range(len(self.lines)) if line is None else (line,)
        for number in numbers:
            for match in pattern.finditer(self.line(number)):
                yield TextPosition(number, match.start())


def _units(text: str, encoding: Encoding) -> int:
    if text.isascii() or encoding == "utf-32":
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
