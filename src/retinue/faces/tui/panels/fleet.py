"""The fleet: main and its agents below the editor, to choose one with the keys.

It has the keys only while it has the focus, which it gets from an empty prompt and gives back
with Escape, above its first row, or with any key that is not its own: that one still arrives
where a person would have expected it.
"""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widget import Widget

from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.fleet_lines import MOST_ROWS, Fleet, fleet_lines
from retinue.faces.tui.panels.lines import LinesPanel

LOWEST = 14
"""Rows of a terminal that has room for a fleet; a lower one has none."""
_MOVES = {"up": -1, "down": 1}
"""No letters: someone may begin to type."""


class FleetPanel(LinesPanel):
    """`enter()` gives it the keys. Posts `Chosen` when someone leaves it, with the run they want
    to look at, if any. Nothing is shown and no key is taken while it is not `enabled`."""

    can_focus = False
    """Never by Tab or mouse: `enter` switches it on for as long as someone is in the list."""

    class Chosen(Message):
        """`run_id` is None for main and for leaving: the editor has the keys again."""

        def __init__(self, run_id: str | None) -> None:
            super().__init__()
            self.run_id = run_id

    def __init__(self) -> None:
        super().__init__(id="fleet")
        self.fleet = Fleet()
        self.enabled = True
        self._rows: list[RunCard] = []
        self._editor: Widget | None = None

    def paint(self, board: Board, now: float, frame: int, *, motion: bool) -> None:
        most = min(MOST_ROWS, (self.app.size.height - LOWEST) // 2 + 1)
        self._rows = self.fleet.rows(board, now) if self.enabled and most > 0 else []
        if not self._rows:
            if self.fleet.selected is not None:
                self._leave(None)
            self.show([])
            return
        width = self.app.size.width - 2
        self.show(fleet_lines(board, self.fleet, now, frame, width, motion=motion, most=most))

    def enter(self) -> bool:
        """From an empty prompt. False when there is nothing to enter."""
        if not self.enabled or not self.fleet.enter(self._rows):
            return False
        self._editor = self.screen.focused
        self.can_focus = True
        self.focus()
        return True

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "ctrl+c":
            return
        event.stop()
        event.prevent_default()
        if self.fleet.selected is None:  # it was on its way here when the editor got the focus back
            self._pass_on(event)
        elif event.key in _MOVES:
            self.fleet.move(_MOVES[event.key], self._rows)
            if self.fleet.selected is None:
                self._leave(None)
        elif event.key == "enter":
            card = self.fleet.chosen(self._rows)
            self._leave(card.id if card is not None else None)
        else:
            self._leave(None)
            if event.key not in ("escape", "left"):
                self._pass_on(event)

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted is for the editor."""
        event.stop()
        self._leave(None)
        if self._editor is not None:
            self._editor.post_message(events.Paste(event.text))

    def on_blur(self) -> None:
        """Whoever took the focus has the keys."""
        self.fleet.leave()

    def on_focus(self) -> None:
        """Only `enter` leads here: when a terminal that was left comes back, the editor goes on."""
        if self.fleet.selected is None:
            self._leave(None)

    def _leave(self, run_id: str | None) -> None:
        self.fleet.leave()
        self.can_focus = False
        self.screen.set_focus(self._editor)
        self.post_message(self.Chosen(run_id))

    def _pass_on(self, event: events.Key) -> None:
        if self._editor is not None:
            self._editor.post_message(events.Key(event.key, event.character))
