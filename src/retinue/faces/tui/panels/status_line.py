"""The last line of the screen: where one is, what it costs, what waits."""

from __future__ import annotations

import time

from rich.text import Text
from textual import work
from textual.widgets import Static

from retinue.faces.tui.board.text import fit_line, one_line
from retinue.faces.tui.statusline import TEMPLATE, THROTTLE_SECONDS, Facts, fill, output_of
from retinue.runs.world import World
from retinue.settings.table import Settings

HINT_SECONDS = 2.0


class StatusLine(Static):
    """Redrawn only when what it says has changed."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self._shown: Text | None = None
        self._hint = ""
        self._hint_until = 0.0
        self._filled: tuple[str, Facts] | None = None
        self._line = Text()
        self._asking = False
        self._ran_at = 0.0
        self._ran_for: tuple[str, Facts] | None = None

    def show(self, text: str) -> None:
        """Says something for two seconds in place of the line."""
        self._hint, self._hint_until = one_line(text), time.monotonic() + HINT_SECONDS
        self._draw()

    def paint(self, facts: Facts, world: World) -> None:
        """Called as often as the screen is painted; asks the command only when it is due."""
        command = command_of(world.settings.settings)
        if command is not None:
            self._ask(command, facts, world)
        else:
            template = world.settings.settings.status_line_template or TEMPLATE
            if self._filled != (template, facts):
                self._filled = (template, facts)
                self._line = Text(one_line(fill(template, facts)))
        self._draw()

    def _ask(self, command: str, facts: Facts, world: World) -> None:
        due = time.monotonic() - self._ran_at >= THROTTLE_SECONDS
        if due and not self._asking and self._ran_for != (command, facts):
            self._asking, self._ran_for = True, (command, facts)
            self._run(command, facts, world)

    @work(group="status line")
    async def _run(self, command: str, facts: Facts, world: World) -> None:
        try:
            self._line = await output_of(command, facts, world.tool_environment, world.cwd)
            self._draw()
        finally:
            self._asking, self._ran_at = False, time.monotonic()

    def _draw(self) -> None:
        hinted = self._hint and time.monotonic() < self._hint_until
        line = fit_line(Text(self._hint) if hinted else self._line.copy(), max(self.app.size.width - 2, 0))
        if self._shown is None or line != self._shown:
            self._shown = line
            self.update(line)


def command_of(settings: Settings) -> str | None:
    """The command to ask, if there is one."""
    return None if settings.status_line_type == "template" else settings.status_line_command
