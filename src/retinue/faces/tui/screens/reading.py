"""A long text to scroll through: only what is on the screen is drawn, however much there is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import chop_cells
from rich.segment import Segment
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip


class Reading(ScrollView, can_focus=False):
    """Shows finished lines. One that is too long goes on in the next row; nothing is left out."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Text] = ()
        self._rows: list[Text] = []

    def show(self, lines: Sequence[Text]) -> None:
        """The same sequence again costs nothing."""
        if lines is not self._lines:
            self._lines = lines
            self._fold()
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        self._fold()

    def _fold(self) -> None:
        width = max(self.scrollable_content_region.width, 1)
        self._rows = [row for line in self._lines for row in folded(line, width)]
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        at, width, style = y + self.scroll_offset.y, self.size.width, self.rich_style
        if at >= len(self._rows):
            return Strip.blank(width, style)
        row = self._rows[at]
        console = self.app.console
        own = console.get_style(row.style, default="")  # what render leaves out of a plain line
        drawn = Strip(Segment.apply_style(row.render(console), own), row.cell_len)
        return drawn.adjust_cell_length(width, style).apply_style(style)


def folded(line: Text, width: int) -> list[Text]:
    """The line as rows of at most `width` cells."""
    if line.cell_len <= width:
        return [line]
    ends, at = [], 0
    for piece in chop_cells(line.plain, width):
        at += len(piece)
        ends.append(at)
    return list(line.divide(ends[:-1]))
