"""The help: keys and commands, from the same tables that the app works by."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from retinue.faces.text import optional
from retinue.faces.tui.board.viewer import HELP as VIEWER_HELP
from retinue.faces.tui.board.viewer import KEYS as VIEWER_KEYS
from retinue.faces.tui.frame import COMMANDS, EDITOR, KEYS, SCREENS, Key

CLOSING = "Esc closes this. Other keys: retinue settings set keys.NAME KEY"


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1", "dismiss(None)", "close"),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]

    def __init__(self, *_: str) -> None:
        super().__init__(classes="page")

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(help_text(getattr(self.app, "keys", KEYS)))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_down(self) -> None:
        self.query_one(VerticalScroll).scroll_down(animate=False)

    def action_up(self) -> None:
        self.query_one(VerticalScroll).scroll_up(animate=False)


def help_text(keys: tuple[Key, ...]) -> Text:
    rows = [(key, "", words) for key, words in EDITOR]
    rows += [(each.key, each.name, each.help) for each in keys]
    rows += [(entry.key, "", entry.help) for entry in SCREENS.values() if entry.key]
    text = Text()
    _table(text, "Keys", rows)
    commands = sorted(COMMANDS.values(), key=lambda each: each.name)
    _table(text, "Commands", [(f"/{each.name} {each.arguments}".strip(), "", each.help) for each in commands])
    _table(text, "In a message", [("@name words", "", "say it to that agent"), ("@path", "", "name a file")])
    viewer = [(", ".join(VIEWER_KEYS[move]), f"viewer.{move}", words) for move, words in VIEWER_HELP.items()]
    _table(text, "In the viewer of a run", viewer)
    text.append(CLOSING, "dim")
    return text


def _table(text: Text, title: str, rows: list[tuple[str, str, str]]) -> None:
    text.append(f"{title}\n", "bold")
    width = max(len(first) for first, _, _ in rows)
    for first, name, words in rows:
        text.append(f"  {first:<{width}}  ", "bold")
        text.append(f"{words}{optional('  ({})', name)}\n")
    text.append("\n")
