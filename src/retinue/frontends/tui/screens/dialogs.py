"""Small questions over the screen: confirm, choose, enter a line, write a text. Esc returns None.

The help is here as well. It takes keys and commands from the tables of the app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from retinue.app.rich_text import one_line
from retinue.app.text import optional
from retinue.frontends.tui.board.viewer import HELP as VIEWER_HELP
from retinue.frontends.tui.board.viewer import KEYS as VIEWER_KEYS
from retinue.frontends.tui.frame import COMMANDS, EDITOR, KEYS, SCREENS, SIGNS, Frame, Key
from retinue.frontends.tui.screens.sheet import Row, Rows

if TYPE_CHECKING:
    from retinue.core.person_prompt import PromptCommand


# The returned value, the key that chooses it, and the label.
Choice = tuple[str, str, str]


class ConfirmScreen(ModalScreen[str | None]):
    """Returns the chosen value, or None for Esc. Enter takes the first choice."""

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
        for value, key, _ in self._choices:
            if key == event.key:
                event.stop()
                self.dismiss(value)
                return


async def confirm(app: App[Any], question: str, detail: str, yes: str) -> bool:
    """Ask before a destructive action. Enter cancels it; `yes` describes the key y. Call this from a worker only."""
    choices = [("no", "n", "Keep it"), ("yes", "y", yes)]
    return await app.push_screen_wait(ConfirmScreen(question, choices, detail)) == "yes"


# Returns the problem of an answer; empty if there is none.
Check = Callable[[str], str]


class Dialog(ModalScreen[str | None]):
    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical { width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $primary;
        padding: 0 1; background: $surface; }
    Dialog .question { text-style: bold; }
    Dialog .detail { color: $text-muted; }
    Dialog .wrong { color: $error; display: none; }
    Dialog Rows { height: auto; max-height: 12; border: none; padding: 0; background: $surface;
        scrollbar-size-vertical: 1; }
    Dialog Input { border: round $secondary; }
    Dialog Input:focus { border: round $primary; }
    Dialog TextArea, Dialog TextArea:focus { height: 10; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "cancel")]

    def __init__(self, question: str, detail: str = "") -> None:
        super().__init__()
        self._question = question
        self._detail = detail

    def _top(self) -> ComposeResult:
        yield Static(Text(one_line(self._question)), classes="question")
        if self._detail:
            yield Static(Text("\n".join(map(one_line, self._detail.splitlines()))), classes="detail")

    def _wrong(self, text: str) -> None:
        wrong = self.query_one(".wrong", Static)
        wrong.display = bool(text)
        wrong.update(Text(text))


class Pick(Dialog):
    """A choice of one row. `rows` are (value, label)."""

    def __init__(
        self, question: str, rows: Sequence[tuple[str, str]], *, detail: str = "", start: str | None = None
    ) -> None:
        super().__init__(question, detail)
        self._values: list[str] = []
        self._rows: list[Row] = []
        self._take(rows)
        self._start = None
        if start in self._values:
            self._start = str(self._values.index(start))

    def compose(self) -> ComposeResult:
        with Vertical():
            yield from self._top()
            yield Rows()
            yield Static(classes="wrong")

    def on_mount(self) -> None:
        rows = self.query_one(Rows)
        rows.fill(self._rows, self._start)
        rows.focus()

    def show(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show other rows, and select the first."""
        self._take(rows)
        self.query_one(Rows).fill(self._rows, "0")

    def _take(self, rows: Sequence[tuple[str, str]]) -> None:
        self._values = [value for value, _ in rows]
        self._rows = [(str(n), Text(one_line(words), no_wrap=True)) for n, (_, words) in enumerate(rows)]

    def on_option_list_option_selected(self, message: Rows.OptionSelected) -> None:
        self.take(self._values[int(message.option_id or 0)])

    def take(self, value: str) -> None:
        """Close with the value of the chosen row."""
        self.dismiss(value)


class Ask(Dialog):
    """A question for one line of text. While `check` finds a problem, it shows the problem and stays open."""

    def __init__(
        self,
        question: str,
        *,
        detail: str = "",
        value: str = "",
        check: Check = lambda text: "",
        empty: bool = False,
        secret: bool = False,
    ) -> None:
        """`empty`: an empty line is a valid answer; `secret`: the typed text is not shown."""
        super().__init__(question, detail)
        self._secret = secret
        self._value = value
        self._check = check
        self._empty = empty

    def compose(self) -> ComposeResult:
        with Vertical():
            yield from self._top()
            yield Input(self._value, password=self._secret)
            yield Static(classes="wrong")

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = blinks(self)
        field.focus()

    def on_input_changed(self) -> None:
        self._wrong("")

    def on_input_submitted(self, message: Input.Submitted) -> None:
        text = message.value.strip()
        wrong = self._check(text)
        if not text and not self._empty:
            wrong = "Say something, or press Esc."
        if wrong:
            self._wrong(wrong)
        else:
            self.dismiss(text)


def blinks(screen: Dialog) -> bool:
    """Return whether the cursor blinks. It does not for people who want no motion."""
    return cast("Frame", screen.app).motion


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
            app = cast("Frame", self.app)
            yield Static(help_text(getattr(app, "keys", KEYS), app.project.prompt_commands().values()))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_down(self) -> None:
        self.query_one(VerticalScroll).scroll_down(animate=False)

    def action_up(self) -> None:
        self.query_one(VerticalScroll).scroll_up(animate=False)


def help_text(keys: tuple[Key, ...], called: Iterable[PromptCommand] = ()) -> Group:
    """Return the tables of the help. `called` are command files and skills."""
    rows = [(key, "", words) for key, words in EDITOR]
    rows += [(entry.key, entry.name, entry.help) for entry in keys]
    rows += [(entry.key, "", entry.help) for entry in SCREENS.values() if entry.key]
    commands = sorted(COMMANDS.values(), key=lambda entry: entry.name)
    parts = _table("Keys", rows)
    parts += _table("Commands", [(f"/{entry.name} {entry.arguments}".strip(), "", entry.help) for entry in commands])
    own = [entry for entry in called if entry.name not in COMMANDS]
    if own:
        rows = [(f"/{entry.name} {entry.hint}".strip(), "", f"{entry.description} ({entry.origin})") for entry in own]
        parts += _table("Commands of files, and skills", rows)
    parts += _table("In a message", [(sign, "", words) for sign, words in SIGNS])
    viewer = [(", ".join(VIEWER_KEYS[move]), f"viewer.{move}", words) for move, words in VIEWER_HELP.items()]
    parts += _table("In the viewer of a run", viewer)
    return Group(*parts, Text(CLOSING, "dim"))


def _table(title: str, rows: list[tuple[str, str, str]]) -> list[RenderableType]:
    """Return a heading and two columns. A long text continues in its own column."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=28)
    table.add_column()
    for first, name, words in rows:
        table.add_row(Text(f"  {one_line(first)}", "bold"), Text(one_line(f"{words}{optional('  ({})', name)}")))
    return [Text(title, "bold"), table, Text()]
