"""Earlier conversations of this project: find one by its words, go on with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from retinue.app.conversation import list_conversations
from retinue.app.rich_text import fit, one_line
from retinue.app.text import MARKS, optional, plural
from retinue.core.delegation import LIVE
from retinue.core.format import format_cost, format_wait
from retinue.core.run_state import RunState

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp

MOST = 200
HINT = "Enter goes on with it · type to search · Esc closes"


class SessionsScreen(ModalScreen[str | None]):
    """Opens the chosen conversation itself, and returns its id."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "close"),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]

    def __init__(self, words: str = "") -> None:
        super().__init__(classes="page")
        self._words = words

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text("Conversations", "bold"))
            yield Input(self._words, placeholder="search", compact=True)
            yield OptionList()
            yield Static(Text(HINT, "dim"), classes="hint")

    def on_mount(self) -> None:
        app = cast("RetinueApp", self.app)
        self._fill()
        search = self.query_one(Input)
        search.cursor_blink = app.motion
        search.focus()

    def on_input_changed(self) -> None:
        self._fill()

    def on_input_submitted(self) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self._open(options.get_option_at_index(options.highlighted).id)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self._open(message.option_id)

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def _fill(self) -> None:
        app = cast("RetinueApp", self.app)
        words = self.query_one(Input).value.split()
        found = list_conversations(app.project.log.reader, words, MOST)
        width = max(self.size.width - 10, 20)
        options = self.query_one(OptionList)
        options.clear_options()
        for row, cost in found:
            options.add_option(Option(line(row, cost, time.time(), width), id=row.id))
        if found:
            options.highlighted = 0

    @work
    async def _open(self, run_id: str | None) -> None:
        app = cast("RetinueApp", self.app)
        self.dismiss(run_id)
        if run_id is not None and run_id != app.talk.main_id:
            app.open_later(run_id)


def line(row: RunState, cost: float | None, now: float, width: int) -> Text:
    """Return `✓ 5m ago  12 turns  ~$0.02  what was asked`. `cost` is that of its agents, too."""
    live = row.state in LIVE
    if live:
        mark = "●"
    elif row.state == "ended" and row.ended:
        mark = MARKS.get(row.ended, "✗")
    else:
        mark = "■"
    when = format_wait(max(now - row.updated_at, 0)).partition(" ")[0]
    notes = [f"{mark} {when} ago", plural(row.turns, "turn"), format_cost(cost)]
    if live:
        notes.append(optional("in process {}", row.pid))
    notes.append(one_line(row.task))
    return Text(fit("  ".join(filter(None, notes)), width), no_wrap=True)
