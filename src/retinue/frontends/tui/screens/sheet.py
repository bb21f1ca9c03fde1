"""Building blocks of screens: full-screen sheets with a heading and their keys, lists, and long texts.

All content is drawn as `Text`, never as markup, so that names and texts of agents cannot change the display.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from rich.cells import cell_len
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from retinue.app.rich_text import STYLES, chop, fit, one_line
from retinue.errors import RetinueError
from retinue.frontends.tui.chat.answer import strip_of
from retinue.frontends.tui.frame import Frame, sentence

if TYPE_CHECKING:
    from retinue.app.retinue import Project, Retinue

Result = TypeVar("Result")
Answer = TypeVar("Answer")
# The key that is returned when the row is chosen, and its line.
Row = tuple[str, Text]

# The prefix of row ids of separators.
HEADING = "head: "


class Rows(OptionList):
    """A list that keeps its selection when it is filled again. j and k work like the arrow keys."""

    DEFAULT_CSS = """
    Rows { text-wrap: nowrap; text-overflow: ellipsis; }
    Rows:focus { border: none; background-tint: $background 0%; }
    Rows > .option-list--option-highlighted, Rows:focus > .option-list--option-highlighted {
        background: $primary 30%; color: $foreground; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
    ]

    @property
    def chosen(self) -> str | None:
        return chosen_in(self)

    def fill(self, rows: Sequence[Row], start: str | None = None) -> None:
        """Show `rows`, with the same row selected as before, or its neighbour if it is gone."""
        if start is None and [(option.id, option.prompt) for option in self.options] == list(rows):
            return
        key_before, row_before = start or self.chosen, self.highlighted or 0
        self.set_options(Option(line, id=key, disabled=key.startswith(HEADING)) for key, line in rows)
        usable = {key: index for index, (key, _) in enumerate(rows) if not key.startswith(HEADING)}
        if key_before in usable:
            self.highlighted = usable[key_before]
        elif usable:
            self.highlighted = min(usable.values(), key=lambda index: abs(index - row_before))


class Sheet(Screen[Result]):
    """Subclasses yield their widgets in `body` and name their keys in `keys_line`."""

    DEFAULT_CSS = """
    Sheet { layout: vertical; background: $background; }
    Sheet > #heading { height: 1; padding: 0 1; text-style: bold; color: $primary; background: $panel; }
    Sheet > #said { height: auto; max-height: 4; padding: 0 1; display: none; }
    Sheet > #keys { height: auto; max-height: 2; padding: 0 1; color: $text-muted; background: $panel; }
    Sheet Rows { height: 1fr; border: none; padding: 0 1; background: $background; scrollbar-size-vertical: 1; }
    Sheet .about { height: auto; max-height: 40%; padding: 0 1; border-top: solid $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]
    heading: ClassVar[str] = ""
    keys_line: ClassVar[str] = "Esc back"

    def compose(self) -> ComposeResult:
        yield Static(Text(self.heading), id="heading")
        yield from self.body()
        yield Static(id="said")
        yield Static(Text(self.keys_line), id="keys")

    def body(self) -> Iterable[Widget]:
        """Return the widgets between heading and keys."""
        yield Rows()

    @property
    def host(self) -> Frame:
        return cast("Frame", self.app)

    @property
    def retinue(self) -> Retinue:
        return self.host.retinue

    @property
    def project(self) -> Project:
        return self.host.project

    @property
    def room(self) -> int:
        """Return the number of cells for a line of a list."""
        return max(self.app.size.width - 5, 10)

    @property
    def rows(self) -> Rows:
        return self.query_one(Rows)

    @property
    def chosen(self) -> str:
        """Return the key of the selected row; empty if there is none."""
        return self.rows.chosen or ""

    async def ask(self, dialog: ModalScreen[Answer]) -> Answer:
        """Return the answer to a question over this sheet. Call this from a worker only."""
        return await self.app.push_screen_wait(dialog)

    def near(self, path: Path | str) -> str:
        return near(path, self.project.cwd)

    def now(self) -> float:
        return self.retinue.supervisor.clock.now()

    def head(self, text: str) -> None:
        self.query_one("#heading", Static).update(Text(fit(one_line(text), max(self.app.size.width - 2, 0))))

    def keys(self, text: str) -> None:
        self.query_one("#keys", Static).update(Text(text))

    def say(self, text: str, kind: str = "") -> None:
        """Show the result of the last key until the next one. `kind` is a key of `STYLES`."""
        line = self.query_one("#said", Static)
        line.display = bool(text)
        line.update(Text("\n".join(map(one_line, text.splitlines())), STYLES.get(kind, "")))

    @work
    async def do(self, task: Awaitable[None]) -> None:
        """Do work that may ask, wait or fail. A failure is shown on the sheet."""
        try:
            await task
        except RetinueError as error:
            # The person may have left the sheet during the work.
            if self.is_mounted:
                self.say(sentence(error), "error")

    def action_close(self) -> None:
        self.dismiss()


class ListSheet(Sheet[Result]):
    """A sheet with a list, and below it a description of the selected row.

    Subclasses fill the list in `draw`. It is called when the sheet opens, reappears or is resized, and every
    `look_seconds` if that is set. They describe the selected row in `about`.
    """

    DEFAULT_CSS = """
    ListSheet #about { height: 9; padding: 0 1; border-top: solid $panel; scrollbar-size-vertical: 1; }
    """
    look_seconds: ClassVar[float] = 0.0
    _drawn_at = 0.0

    def body(self) -> Iterable[Widget]:
        yield Rows()
        with VerticalScroll(id="about", can_focus=False):
            yield Static()

    def draw(self) -> None:
        raise NotImplementedError

    def about(self) -> Text | str:
        return ""

    def on_mount(self) -> None:
        self.rows.focus()
        self.redraw()
        if self.look_seconds:
            self.host.beat.subscribe(self, self._beat)

    def _beat(self, now: float) -> None:
        if now - self._drawn_at >= self.look_seconds:
            self._drawn_at = now
            self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def on_option_list_option_highlighted(self) -> None:
        self._describe()

    def redraw(self) -> None:
        # The list must not move under a dialog, while the person answers a question about one of its rows.
        if self.is_current:
            self.draw()
            self._describe()

    def _describe(self) -> None:
        self.query_one("#about Static", Static).update(self.about())


class ListPage(ModalScreen[Result]):
    """A list in a box over the app, with a search line above it if it `searches`. Subclasses add its options in `fill`,
    and handle a choice in `choose`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "close"),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]
    heading: ClassVar[str]
    hint: ClassVar[str]
    searches: ClassVar[bool] = False

    def __init__(self, words: str = "") -> None:
        super().__init__(classes="page")
        self._start = words

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(self.heading, "bold"))
            if self.searches:
                yield Input(self._start, placeholder="search", compact=True)
            yield OptionList()
            yield Static(Text(self.hint, "dim"), classes="hint")

    def on_mount(self) -> None:
        self.fill()
        if self.searches:
            field = self.query_one(Input)
            field.cursor_blink = self.host.motion
            field.focus()
        else:
            self.options.focus()

    def fill(self) -> object:
        raise NotImplementedError

    def choose(self, key: str | None) -> object:
        raise NotImplementedError

    @property
    def host(self) -> Frame:
        return cast("Frame", self.app)

    @property
    def options(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def room(self) -> int:
        """Return the number of cells for a line of the list."""
        return max(self.size.width - 10, 20)

    @property
    def words(self) -> list[str]:
        """Return the words in the search line."""
        return self.query_one(Input).value.split()

    @property
    def chosen(self) -> str | None:
        return chosen_in(self.options)

    def action_move(self, step: int) -> None:
        if step > 0:
            self.options.action_cursor_down()
        else:
            self.options.action_cursor_up()

    def on_input_changed(self) -> None:
        self.fill()

    def on_input_submitted(self) -> None:
        self.choose(self.chosen)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.choose(message.option_id)


def chosen_in(options: OptionList) -> str | None:
    """Return the id of the highlighted option."""
    if options.highlighted is None or options.highlighted >= options.option_count:
        return None
    return options.get_option_at_index(options.highlighted).id


class LongText(ScrollView, can_focus=False):
    """A long text that scrolls. Only its visible rows are drawn. A line that is too long continues in the next row;
    nothing is left out."""

    class Drawn(Message):
        """The beginning or the end of the text was on the screen for the first time."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Text] = ()
        self._rows: list[Text] = []
        self._last_seen = 0

    @property
    def was_read(self) -> bool:
        """Whether every row of the text has been on the screen."""
        return self._last_seen >= len(self._rows)

    @property
    def goes_on(self) -> bool:
        """Whether only a part of the text has been on the screen."""
        return 0 < self._last_seen < len(self._rows)

    def show(self, lines: Sequence[Text]) -> None:
        """Show these lines. Showing the same sequence again costs nothing."""
        if lines is not self._lines:
            self._lines = lines
            self._last_seen = 0
            self._fold()
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        self._fold()

    def _fold(self) -> None:
        width = max(self.scrollable_content_region.width, 1)
        if width != self.virtual_size.width:
            # A new width makes new rows, which nobody has seen.
            self._last_seen = 0
            self.scroll_home(animate=False)
        self._rows = []
        for line in self._lines:
            self._rows += chop(line, width)
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        at, width, style = y + self.scroll_offset.y, self.size.width, self.rich_style
        # Rows are read in order: a person who jumps to the end has not seen the rows before it.
        if at == self._last_seen:
            self._last_seen += 1
            if at == 0 or at + 1 == len(self._rows):
                self.post_message(self.Drawn())
        if at >= len(self._rows):
            return Strip.blank(width, style)
        return strip_of(self._rows[at], self.app.console, width, style)


def near(path: Path | str, cwd: Path) -> str:
    """Return a short path: relative to the project, or to the home folder."""
    for base, sign in ((cwd, ""), (Path.home(), "~/")):
        if Path(path).is_relative_to(base):
            return f"{sign}{Path(path).relative_to(base)}"
    return str(path)


def columns(cells: Sequence[tuple[str, int, str]], room: int, gap: int = 2) -> Text:
    """Return one line from cells given as (text, width, style); the last cell takes the remaining width."""
    line, free = Text(no_wrap=True), room
    for text, width, meaning in cells[:-1]:
        shown = fit(one_line(text), min(width, max(free, 0)))
        line.append(shown, STYLES.get(meaning, ""))
        line.append(" " * (max(width - cell_len(shown), 0) + gap))
        free -= width + gap
    for text, _, meaning in cells[-1:]:
        line.append(fit(one_line(text), free), STYLES.get(meaning, ""))
    line.rstrip()
    line.truncate(room)
    return line
