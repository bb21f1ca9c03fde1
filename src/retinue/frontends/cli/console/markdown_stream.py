"""Streams an answer as Markdown to a terminal: each block is drawn as soon as it is complete.

A block ends with a blank line outside of a fence that is followed by a line without indentation, so that the items of a
list stay together. `NO_COLOR` leaves bold and italics; a dumb terminal gets the plain text.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from retinue.app.output import write_span
from retinue.core.controls import escape_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_MAX_PROSE_COLUMNS = 120
"""Wider lines of prose are hard to read."""


def can_style(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether `stream` is a terminal that supports styles."""
    env = os.environ if environment is None else environment
    return stream.isatty() and env.get("TERM", "") not in ("", "dumb")


def has_colour(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether colours are wanted there as well (no-color.org)."""
    env = os.environ if environment is None else environment
    return can_style(stream, env) and not env.get("NO_COLOR")


class MarkdownStream:
    """Takes pieces of text as they arrive, and draws complete blocks."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._drawn = False
        self._console: Console | None = None

    def write(self, piece: str) -> None:
        self._text += piece
        # Most pieces are short, and only a line break can end a block.
        if "\n" in piece:
            end = _end_of_blocks(self._text)
            if end:
                self._draw(self._text[:end])
                self._text = self._text[end:]

    def close(self) -> None:
        """Draw the remaining text. The next piece starts another text."""
        self._draw(self._text)
        self._text, self._drawn = "", False

    def _draw(self, text: str) -> None:
        from retinue.app.markdown import markdown_lines

        if not text.strip():
            return
        if self._drawn:
            self._stream.write("\n")
        self._drawn = True
        width = min(shutil.get_terminal_size().columns, _MAX_PROSE_COLUMNS)
        for line in markdown_lines(escape_controls(text).expandtabs(4), width):
            self._write_line(line)
        self._stream.flush()

    def _write_line(self, line: Text) -> None:
        if self._console is None:
            from rich.console import Console

            # Used only to look up styles.
            self._console = Console(file=self._stream, force_terminal=True, no_color=not has_colour(self._stream))
        for segment in line.render(self._console):
            write_span(self._stream, segment.text, self._codes_of(segment.style))
        self._stream.write("\n")

    def _codes_of(self, style: Style | None) -> str:
        """Return the SGR codes of a style."""
        from rich.console import COLOR_SYSTEMS

        assert self._console is not None
        if style is None or self._console.color_system is None:
            return ""
        shown = style.update_link(None)
        if self._console.no_color:
            shown = shown.without_color
        drawn = shown.render("x", color_system=COLOR_SYSTEMS[self._console.color_system])
        return drawn.partition("x")[0].removeprefix("\x1b[").removesuffix("m")


def _end_of_blocks(text: str) -> int:
    """Return the end of the last complete block; 0 if there is none."""
    end = offset = 0
    fence: str | None = None
    blank = False
    lines = text.split("\n")
    for line in lines[:-1]:
        mark = _FENCE.match(line)
        if fence is None and blank and line.strip() and not line[0].isspace():
            end = offset
        if mark is not None:
            if fence is None:
                fence = mark[1]
            elif fence == mark[1]:
                fence = None
        blank = fence is None and not line.strip()
        offset += len(line) + 1
    # The unfinished line ends the block before it, once its indentation is known.
    last = lines[-1]
    if fence is None and blank and last and not last[0].isspace():
        end = offset
    return end


def write_markdown(text: str, stream: TextIO) -> None:
    """Draw a complete text."""
    drawn = MarkdownStream(stream)
    drawn.write(text)
    drawn.close()
