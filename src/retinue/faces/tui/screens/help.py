"""A long text to scroll through, drawn only as far as it is on the screen; and the help made with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import chop_cells
from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from retinue.faces.tui.board.viewer import HELP as VIEWER_HELP
from retinue.faces.tui.board.viewer import KEYS as VIEWER_KEYS
from retinue.faces.tui.frame import COMMANDS, DOORS, EDITOR, KEYS, Key

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
    screens = [(door.key, "", door.help) for door in DOORS.values() if door.key]
    rows = [(key, "", words) for key, words in EDITOR]
    rows += [(each.key, each.name, each.help) for each in keys]
    text = Text()
    _table(text, "Keys", rows + screens)
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
        text.append(f"{words}{f'  ({name})' if name else ''}\n")
    text.append("\n")


class Reading(ScrollView, can_focus=False):
    """Shows finished lines. One that is too long goes on in the next row; nothing is left out."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Text] = ()
        self._rows: list[Text] = []

    def show(self, lines: Sequence[Text]) -> None:
        """The same sequence again costs nothing."""
        if lines is not self._lines:
            self._lines = lines
            self._fold()
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        self._fold()

    def _fold(self) -> None:
        width = max(self.scrollable_content_region.width, 1)
        self._rows = [row for line in self._lines for row in folded(line, width)]
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        at, width, style = y + self.scroll_offset.y, self.size.width, self.rich_style
        if at >= len(self._rows):
            return Strip.blank(width, style)
        row = self._rows[at]
        console = self.app.console
        own = console.get_style(row.style, default="")  # what render leaves out of a plain line
        drawn = Strip(Segment.apply_style(row.render(console), own), row.cell_len)
        return drawn.adjust_cell_length(width, style).apply_style(style)


def folded(line: Text, width: int) -> list[Text]:
    """The line as rows of at most `width` cells."""
    if line.cell_len <= width:
        return [line]
    ends, at = [], 0
    for piece in chop_cells(line.plain, width):
        at += len(piece)
        ends.append(at)
    return list(line.divide(ends[:-1]))
