"""Ended agents in the conversation, as a box that opens, and messages that still wait to be delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from rich.console import Group
from rich.text import Text
from textual.widgets import Static

from retinue.faces.tui.board.announcement import Announcement, announcement, announcement_lines
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import fit, one_line
from retinue.faces.tui.chat.folded import Folded

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


class NotificationBox(Folded):
    """`made` gives one for a message that tells of ended agents, None for any other."""

    DEFAULT_CSS = """
    NotificationBox { border: round $secondary; padding: 0 1; margin: 1 0 0 0; height: auto; }
    NotificationBox:focus { border: round $primary; }
    """

    def __init__(self, told: Announcement) -> None:
        super().__init__("notification")
        self._told = told

    @classmethod
    def made(cls, text: str) -> NotificationBox | None:
        told = announcement(text)
        return None if told is None else cls(told)

    def head(self) -> Text:
        return self._lines(expanded=False)[0]

    def body(self) -> Group:
        return Group(*self._lines(expanded=True)[1:])

    def redraw(self) -> None:
        """Folded it is not one line but the beginning of each result."""
        if self.is_attached:
            self.update(Group(*self._lines(expanded=self.unfolded)))

    def _lines(self, *, expanded: bool) -> list[Text]:
        app = cast("RetinueApp", self.app)
        cost = app.retinue.supervisor.settings.show_cost
        lines = announcement_lines(self._told, app.board.cards, expanded=expanded, cost=cost)
        for line in lines:
            line.no_wrap, line.overflow = not expanded, "fold" if expanded else "ellipsis"
        return lines


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
