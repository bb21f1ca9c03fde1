"""A question with a few answers, chosen by a key or with the arrows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

Choice = tuple[str, str, str]
"""What is given back, the key that chooses it, and the words."""


class ConfirmScreen(ModalScreen[str | None]):
    """Gives the chosen value, or None for Esc. The first choice is the one that Enter takes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "cancel")]

    def __init__(self, question: str, choices: Sequence[Choice], detail: str = "") -> None:
        super().__init__(classes="dialog")
        self._question = question
        self._detail = detail
        self._choices = tuple(choices)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(self._question), classes="question")
            if self._detail:
                yield Static(Text(self._detail), classes="detail")
            yield OptionList(*(Option(Text(f"{key}  {words}"), id=value) for value, key, words in self._choices))

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(message.option_id)

    def on_key(self, event: events.Key) -> None:
        chosen = next((value for value, key, _ in self._choices if key == event.key), None)
        if chosen is not None:
            event.stop()
            self.dismiss(chosen)
