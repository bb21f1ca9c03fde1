"""The fleet: main and its agents below the editor, to choose one with the keys."""

from __future__ import annotations

from rich.console import Group
from textual.widgets import Static

from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.fleet_lines import Fleet, fleet_lines


class FleetPanel(Static):
    def __init__(self) -> None:
        super().__init__(id="fleet")
        self.fleet = Fleet()

    def paint(self, board: Board, now: float, frame: int, *, motion: bool) -> None:
        lines = fleet_lines(board, self.fleet, now, frame, self.app.size.width, motion=motion)
        self.display = bool(lines)
        if lines:
            self.update(Group(*lines))
