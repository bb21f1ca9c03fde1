"""The editor: several lines, Enter sends, Shift+Enter or Ctrl+J begins a new line."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import TextArea


class Prompt(TextArea):
    """Grows with its text, to a third of the screen. What is sent is a `Submitted` message."""

    class Submitted(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Leaving(Message):
        """A key that an empty prompt leaves to others: `key` is its name."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__(id="prompt", soft_wrap=True, show_line_numbers=False, placeholder="Say what to do. /help")

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.prevent_default().stop()
            text = self.text.strip()
            if text:
                self.post_message(self.Submitted(text))
                self.text = ""
            return
        if event.key in ("shift+enter", "ctrl+j", "alt+enter"):
            event.prevent_default().stop()
            self.insert("\n")
            return
        if not self.text and event.key in ("down", "left"):
            event.prevent_default().stop()
            self.post_message(self.Leaving(event.key))
            return
        await super()._on_key(event)
