"""A screen that takes the whole terminal: a heading, what it is about, and the keys that work.

Everything that is drawn is `Text`, never markup: names and words of agents draw nothing but
themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from retinue.errors import RetinueError
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import fit, one_line

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp

Result = TypeVar("Result")
Row = tuple[str, Text]
"""What is given when it is chosen, and the line that is shown."""

HEADING = "head: "
"""How the id of a row begins that only separates others."""


class Rows(OptionList):
    """A list that can be filled again without losing the place. j and k work, too."""

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
        if self.highlighted is None or self.highlighted >= self.option_count:
            return None
        return self.get_option_at_index(self.highlighted).id

    def fill(self, rows: Sequence[Row], start: str | None = None) -> None:
        """Shows `rows`, with the same one chosen as before, or its neighbour if it is gone."""
        if start is None and [(each.id, each.prompt) for each in self.options] == list(rows):
            return
        wanted, place = start or self.chosen, self.highlighted or 0
        self.set_options(Option(line, id=key, disabled=key.startswith(HEADING)) for key, line in rows)
        usable = [index for index, (key, _) in enumerate(rows) if not key.startswith(HEADING)]
        same = next((index for index, (key, _) in enumerate(rows) if key == wanted), None)
        if same is not None:
            self.highlighted = same
        elif usable:
            self.highlighted = min(usable, key=lambda index: abs(index - place))


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
        """The widgets between heading and keys."""
        yield Rows()

    @property
    def host(self) -> RetinueApp:
        return cast("RetinueApp", self.app)

    @property
    def room(self) -> int:
        """How many cells a line of a list may have."""
        return max(self.app.size.width - 5, 10)

    def near(self, path: Path | str) -> str:
        return near(path, self.host.retinue.supervisor.project.cwd)

    def now(self) -> float:
        return self.host.retinue.supervisor.clock.now()

    def head(self, text: str) -> None:
        self.query_one("#heading", Static).update(Text(fit(one_line(text), max(self.app.size.width - 2, 0))))

    def keys(self, text: str) -> None:
        self.query_one("#keys", Static).update(Text(text))

    def say(self, text: str, kind: str = "") -> None:
        """What became of the last key, until the next. `kind` is a meaning of `STYLES`."""
        said = self.query_one("#said", Static)
        said.display = bool(text)
        said.update(Text("\n".join(one_line(line) for line in text.splitlines()), STYLES.get(kind, "")))

    @work
    async def do(self, task: Awaitable[None]) -> None:
        """Work that may ask, wait or fail; what goes wrong is said here."""
        try:
            await task
        except RetinueError as error:
            if self.is_mounted:
                self.say(sentence(error), "error")

    def action_close(self) -> None:
        self.dismiss()


def near(path: Path | str, cwd: Path) -> str:
    """A path as people say it: from the project, or from their home."""
    for base, sign in ((cwd, ""), (Path.home(), "~/")):
        if Path(path).is_relative_to(base):
            return f"{sign}{Path(path).relative_to(base)}"
    return str(path)


def sentence(error: RetinueError) -> str:
    return f"{error.message} {error.remedy}".strip()


def columns(cells: Sequence[tuple[str, int, str]], room: int, gap: int = 2) -> Text:
    """One line of cells as (text, width, meaning); the last takes what room is left."""
    line, left = Text(no_wrap=True), room
    for number, (text, width, meaning) in enumerate(cells):
        last = number == len(cells) - 1
        shown = fit(one_line(text), left if last else min(width, max(left, 0)))
        line.append(shown, STYLES.get(meaning, ""))
        if not last:
            blank = max(width - Text(shown).cell_len, 0) + gap
            line.append(" " * blank)
            left -= width + gap
    line.rstrip()
    line.truncate(room)
    return line
