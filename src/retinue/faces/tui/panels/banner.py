"""A line above the prompt that says what waits, without taking the keys from who types."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from retinue.faces.tui.board.text import fit, one_line


class Banner(Static):
    """Shows one line per topic; no room at all when there is nothing to say."""

    def __init__(self) -> None:
        super().__init__(id="banner")
        self._topics: dict[str, str] = {}

    def show(self, topic: str, text: str) -> None:
        """Says `text` about `topic` until it is said otherwise; an empty text takes it away."""
        if self._topics.get(topic, "") == text:
            return
        if text:
            self._topics[topic] = text
        else:
            self._topics.pop(topic, None)
        self.display = bool(self._topics)
        width = max(self.app.size.width - 2, 0)
        self.update(Text("\n").join(Text(fit(one_line(each), width)) for each in self._topics.values()))
