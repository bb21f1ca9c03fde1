"""Ended agents in the conversation: a box for one or for a group, which opens to show more."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.console import Group
from rich.text import Text

from retinue.faces.tui.board.announcement import Announcement, announcement, announcement_lines
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
        cost = app.crew.supervisor.settings.show_cost
        lines = announcement_lines(self._told, app.board.cards, expanded=expanded, cost=cost)
        for line in lines:
            line.no_wrap, line.overflow = not expanded, "fold" if expanded else "ellipsis"
        return lines
