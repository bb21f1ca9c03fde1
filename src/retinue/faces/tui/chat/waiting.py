"""What was said while the main agent works and has not reached it yet."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text
from textual.widgets import Static

from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import fit, one_line

MOST = 3


class Waiting(Static):
    """One line for each, above the prompt; no room when nothing waits."""

    def __init__(self) -> None:
        super().__init__(id="waiting")
        self._shown: tuple[object, ...] = ()

    def paint(self, queue: Sequence[str], resend_key: str) -> None:
        width = max(self.app.size.width - 2, 0)
        shown = (tuple(queue), width)
        if shown == self._shown:
            return
        self._shown = shown
        self.display = bool(queue)
        if queue:
            self.update(Group(*lines(queue, resend_key, width)))


def lines(queue: Sequence[str], resend_key: str, width: int) -> list[Text]:
    rows = [Text(fit(f"◦ {one_line(text)}", width), STYLES["dim"]) for text in queue[:MOST]]
    more = f"+{len(queue) - MOST} more · " if len(queue) > MOST else ""
    hint = f"  {more}sent after this turn · ↑ to edit · {resend_key.upper()} to send now"
    return [*rows, Text(fit(hint, width), STYLES["dim"])]
