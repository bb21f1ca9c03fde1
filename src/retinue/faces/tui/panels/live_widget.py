"""The live widget: runs at work, above the editor."""

from __future__ import annotations

from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.widget_lines import Look, widget_lines
from retinue.faces.tui.panels.lines import LinesPanel


class LiveWidget(LinesPanel):
    """Redrawn by the app's painter; takes no room when there is nothing to show."""

    def __init__(self) -> None:
        super().__init__(id="live")

    def paint(self, board: Board, now: float, frame: int, look: Look) -> None:
        self.show(widget_lines(board, now, frame, look))
