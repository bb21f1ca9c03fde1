"""The fleet: main and its agents below the editor, to choose one with the keys."""

from __future__ import annotations

from rich.console import Group
from textual.message import Message
from textual.widgets import Static

from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.fleet_lines import Fleet, fleet_lines


class FleetPanel(Static, can_focus=True):
    class Chosen(Message):
        """A run to look at; None for main."""

        def __init__(self, run_id: str | None) -> None:
            super().__init__()
            self.run_id = run_id

    def __init__(self) -> None:
        super().__init__(id="fleet")
        self.fleet = Fleet()

    def enter(self) -> None:
        """The keys are for the list from now on, if there is one."""
        if self.display:
            self.focus()

    def paint(self, board: Board, now: float, frame: int, *, motion: bool) -> None:
        lines = fleet_lines(board, self.fleet, now, frame, self.app.size.width, motion=motion)
        self.display = bool(lines)
        if lines:
            self.update(Group(*lines))
