"""The last line of the screen: where one is, what it costs, what waits."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from retinue.faces.tui.board.text import fit, one_line


class StatusLine(Static):
    def __init__(self) -> None:
        super().__init__(id="status")
        self._shown = ""

    def show(self, text: str) -> None:
        """Set only when it changed."""
        line = fit(one_line(text), max(self.app.size.width - 2, 0))
        if line != self._shown:
            self._shown = line
            self.update(Text(line))
