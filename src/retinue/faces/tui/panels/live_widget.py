"""The live widget: runs at work, above the editor."""

from __future__ import annotations

from dataclasses import replace

from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.widget_lines import Look, widget_lines
from retinue.faces.tui.panels.lines import LinesPanel

LEAST_LINES = 3


class LiveWidget(LinesPanel):
    """Redrawn by the app's painter; takes no room when there is nothing to show, and never more
    than a third of a low terminal: the conversation must stay readable."""

    def __init__(self) -> None:
        super().__init__(id="live")

    def paint(self, board: Board, now: float, frame: int, look: Look) -> None:
        room = max(self.app.size.height // 3, LEAST_LINES)
        self.show(widget_lines(board, now, frame, replace(look, most=min(look.most, room))))
