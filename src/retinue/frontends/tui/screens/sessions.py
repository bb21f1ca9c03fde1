"""Earlier conversations of this project: find one by its text, and continue it."""

from __future__ import annotations

import time

from rich.text import Text
from textual import work
from textual.widgets.option_list import Option

from retinue.app.conversation import list_conversations
from retinue.app.rich_text import fit, one_line
from retinue.app.text import RUN_SIGNS, optional, plural
from retinue.core.delegation import LIVE
from retinue.core.format import format_cost, format_wait
from retinue.core.run_state import RunState
from retinue.frontends.tui.screens.sheet import ListPage

MAX_CONVERSATIONS = 200


class SessionsScreen(ListPage[str | None]):
    """Opens the chosen conversation, and returns its id."""

    heading = "Conversations"
    hint = "Enter goes on with it · type to search · Esc closes"
    searches = True

    def fill(self) -> None:
        rows = list_conversations(self.host.project.log.reader, self.words, MAX_CONVERSATIONS)
        now, room = time.time(), self.room
        self.options.set_options(Option(line(row, cost, now, room), id=row.id) for row, cost in rows)
        self.options.highlighted = 0 if rows else None

    @work
    async def choose(self, key: str | None) -> None:
        self.dismiss(key)
        if key is not None and key != self.host.talk.main_id:
            self.host.open_later(key)


def line(row: RunState, cost: float | None, now: float, width: int) -> Text:
    """Return `✓ 5m ago  12 turns  ~$0.02  the task`. `cost` includes that of its agents."""
    live = row.state in LIVE
    if live:
        mark = "●"
    elif row.state == "ended" and row.ended:
        mark = RUN_SIGNS.get(row.ended, "✗")
    else:
        mark = "■"
    when = format_wait(max(now - row.updated_at, 0)).partition(" ")[0]
    notes = [f"{mark} {when} ago", plural(row.turns, "turn"), format_cost(cost)]
    if live:
        notes.append(optional("in process {}", row.pid))
    notes.append(one_line(row.task))
    return Text(fit("  ".join(filter(None, notes)), width), no_wrap=True)
