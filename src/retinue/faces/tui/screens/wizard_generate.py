"""An agent writes the file of a new agent; the person watches, approves the write, or stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList, Static

from retinue.agents.brief import TURNS, Written, brief, look
from retinue.faces.tui.board.marks import FRAMES, STILL
from retinue.faces.tui.board.text import one_line
from retinue.faces.tui.screens.sheet import Sheet

if TYPE_CHECKING:
    from retinue.runs.handle import RunHandle

WRITER = "general-purpose"
TOOLS = ("read", "write", "edit", "bash", "grep", "find", "ls", "web_search", "fetch_content", "Agent")
FRAME_SECONDS = 0.1


class GenerateScreen(Sheet[Written | None]):
    """Gives what was found in the file when the writing agent had ended; None when stopped."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f2", "inbox", show=False)]
    shows_inbox: ClassVar[bool] = True
    """The inbox may open over it: what the writing agent asks is asked here."""
    heading = "A new agent is being written"
    keys_line = "F2 what waits for you · Esc stop"

    def __init__(self, name: str, described: str, path: Path) -> None:
        super().__init__()
        self._name_wanted, self._described, self._path = name, described, path
        self._run: RunHandle | None = None
        self._stopped = False
        self._frame = 0

    def body(self) -> Iterable[Static | OptionList]:
        yield Static(id="doing", classes="about")

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(FRAME_SECONDS, self._draw)
        self.do(self._write())

    def action_close(self) -> None:
        self._stopped = True
        if self._run is None or not self._run.stopper("The person left."):
            self.dismiss(None)

    def action_inbox(self) -> None:
        self.do(self.host.visit("inbox"))

    async def _write(self) -> None:
        crew = self.host.crew
        known = [tool for tool in TOOLS if tool in crew.supervisor.world.tools]
        task = brief(self._name_wanted, self._described, self._path, known)
        before = _stamp(self._path)
        self._run = await crew.spawn(WRITER, task, limits={"max_turns": TURNS}, background=False)
        outcome = await self._run.wait()
        if self._stopped:
            self.dismiss(None)
            return
        if _stamp(self._path) == before:
            why = outcome.failure.message if outcome.failure is not None else one_line(outcome.text)[:300]
            self.dismiss(
                Written(self._path, f"{self.near(self._path)} was not written. {WRITER} said: {why or 'nothing.'}")
            )
            return
        self.dismiss(await asyncio.to_thread(look, self._path, self._name_wanted))

    def _draw(self) -> None:
        self._frame += 1
        card = self.host.board.cards.get(self._run.id) if self._run is not None else None
        sign = FRAMES[self._frame % len(FRAMES)] if self.host.motion else STILL
        doing = card.activity() if card is not None else "starting…"
        turn = f"turn {card.turns} of {TURNS}" if card is not None and card.turns else ""
        lines = [f"{sign} {WRITER} writes {self.near(self._path)}", f"  {one_line(doing)}", f"  {turn}"]
        waiting = self.host.facts.get("inbox")
        if waiting:
            lines.append(f"  {waiting} waiting for your answer: F2")
        self.query_one("#doing", Static).update(Text("\n".join(line.rstrip() for line in lines)))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes when the file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
