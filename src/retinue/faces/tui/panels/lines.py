"""A panel made of finished lines: it lays out only when their number changes."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from rich.text import Text
from textual.strip import Strip
from textual.widget import Widget

COVERED_SECONDS = 1.0
"""How often it changes while another screen lies over it: each time costs Textual a whole screen,
drawn twice."""


class LinesPanel(Widget):
    """Takes as many rows as it has lines, none when it has none. Lines that did not change are
    not drawn again, so that painting it twenty times a second costs next to nothing."""

    DEFAULT_CSS = "LinesPanel { height: auto; width: 1fr; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: list[Text] = []
        self.display = False
        self._shown_at = 0.0

    def show(self, lines: Sequence[Text]) -> None:
        if not self.is_attached:
            return
        if self.screen is not self.app.screen:
            if monotonic() - self._shown_at < COVERED_SECONDS:
                return
            self._shown_at = monotonic()
        old, self.lines = self.lines, list(lines)
        if len(old) != len(self.lines):
            self.display = bool(self.lines)
            self.styles.height = len(self.lines)
            self.refresh()
            return
        if not all(map(_same, old, self.lines)):
            self.refresh()

    def render_line(self, y: int) -> Strip:
        line = self.lines[y] if y < len(self.lines) else Text()
        console, style = self.app.console, self.rich_style
        drawn = Strip(line.render(console)).apply_style(style + console.get_style(line.style, default=""))
        return drawn.adjust_cell_length(self.size.width, style)


def _same(one: Text, other: Text) -> bool:
    return one.plain == other.plain and one.spans == other.spans and one.style == other.style
