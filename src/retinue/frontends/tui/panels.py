"""The panels around the conversation: the banner, the status line and the list of agents.

A panel changes its layout only when the number of its lines changes. The banner takes no keys from the editor. The
list gets the focus from an empty prompt, and returns it with Escape, with a step above its first row, or with any key
that it does not use. That key is passed on to the editor or the app."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from rich.text import Text
from textual import events, work
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from retinue.app.retinue import Project
from retinue.app.rich_text import fit, fit_line, one_line
from retinue.frontends.tui.board.board import Board
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.board.panel_lines import AgentSelection, Look, agent_lines, listed_agents, selectable
from retinue.frontends.tui.statusline import TEMPLATE, THROTTLE_SECONDS, Facts, fill, output_of

# The refresh interval under another screen: each refresh makes Textual draw the whole screen twice.
COVERED_SECONDS = 1.0


class LinesPanel(Widget):
    """A panel with one row per line. Unchanged lines are not drawn again, so that painting it twenty times a second is
    cheap."""

    DEFAULT_CSS = "LinesPanel { height: auto; width: 1fr; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: list[Text] = []
        self.display = False
        self._shown_at = 0.0

    def show(self, lines: Sequence[Text]) -> None:
        if not self.is_attached:
            return
        if self.screen is not self.app.screen:
            if monotonic() - self._shown_at < COVERED_SECONDS:
                return
            self._shown_at = monotonic()
        old, self.lines = self.lines, list(lines)
        if len(old) != len(self.lines):
            self.display = bool(self.lines)
            self.styles.height = len(self.lines)
            self.refresh()
            return
        if not all(map(_same, old, self.lines)):
            self.refresh()

    def render_line(self, y: int) -> Strip:
        line = self.lines[y] if y < len(self.lines) else Text()
        console, style = self.app.console, self.rich_style
        drawn = Strip(line.render(console)).apply_style(style + console.get_style(line.style, default=""))
        return drawn.adjust_cell_length(self.size.width, style)


def _same(one: Text, other: Text) -> bool:
    return one.plain == other.plain and one.spans == other.spans and one.style == other.style


class Banner(Static):
    """One line per topic, and no rows without a topic."""

    def __init__(self) -> None:
        super().__init__(id="banner")
        self._topics: dict[str, str] = {}

    def show(self, topic: str, text: str) -> None:
        """Show `text` for `topic` until another text replaces it; an empty text removes it."""
        if self._topics.get(topic, "") == text:
            return
        if text:
            self._topics[topic] = text
        else:
            self._topics.pop(topic, None)
        self.display = bool(self._topics)
        width = max(self.app.size.width - 2, 0)
        self.update(Text("\n").join(Text(fit(one_line(topic_text), width)) for topic_text in self._topics.values()))


HINT_SECONDS = 2.0


class StatusLine(Static):
    """The status line, which is drawn only when its text changes."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self._shown: Text | None = None
        self._hint = ""
        self._hint_until = 0.0
        self._filled: tuple[str, Facts, int] | None = None
        self._line = Text()
        self._asking = False
        self._ran_at = 0.0
        self._ran_for: tuple[str, Facts] | None = None

    def show(self, text: str) -> None:
        """Show `text` for two seconds instead of the line."""
        self._hint, self._hint_until = one_line(text), time.monotonic() + HINT_SECONDS
        self._draw()

    def paint(self, facts: Facts, project: Project) -> None:
        """Update the line with each painting of the screen. The command runs only when it is due."""
        command = project.settings.settings.status_line_command
        if command is not None:
            self._ask(command, facts, project)
        else:
            template = project.settings.settings.status_line_template or TEMPLATE
            width = max(self.app.size.width - 2, 0)
            if self._filled != (template, facts, width):
                self._filled = (template, facts, width)
                self._line = Text(one_line(fill(template, facts, width)))
        self._draw()

    def _ask(self, command: str, facts: Facts, project: Project) -> None:
        due = time.monotonic() - self._ran_at >= THROTTLE_SECONDS
        if due and not self._asking and self._ran_for != (command, facts):
            self._asking, self._ran_for = True, (command, facts)
            self._run(command, facts, project)

    @work(group="status line")
    async def _run(self, command: str, facts: Facts, project: Project) -> None:
        try:
            self._line = await output_of(command, facts, project.tool_environment, project.cwd)
            self._draw()
        finally:
            self._asking, self._ran_at = False, time.monotonic()

    def _draw(self) -> None:
        hinted = self._hint and time.monotonic() < self._hint_until
        line = fit_line(Text(self._hint) if hinted else self._line.copy(), max(self.app.size.width - 2, 0))
        if self._shown is None or line != self._shown:
            self._shown = line
            self.update(line)


# Letters are excluded, because the person may begin to type.
_MOVES = {"up": -1, "down": 1}


# Rows reserved for the conversation if the terminal is high enough, and those of the prompt, status and working lines.
CONVERSATION_LINES = 14
_OTHER_LINES = 5
MIN_LIST_ROWS = 3


class AgentsPanel(LinesPanel):
    """The list of agents. `enter()` gives it the focus. When the person leaves the list, it posts `Chosen` with the run
    to open, if any. While it is not `enabled`, it takes no keys."""

    can_focus = False
    """Never by Tab or mouse: `enter` switches it on for as long as someone is in the list."""

    class Chosen(Message):
        """`run_id` is None if the person leaves without a choice; then the editor gets the focus."""

        def __init__(self, run_id: str | None) -> None:
            super().__init__()
            self.run_id = run_id

    def __init__(self) -> None:
        super().__init__(id="agents")
        self.selection = AgentSelection()
        self.enabled = True
        self._rows: list[RunCard] = []
        self._editor: Widget | None = None

    def paint(self, board: Board, now: float, frame: int, look: Look) -> None:
        height = self.app.size.height
        room = max(height - CONVERSATION_LINES - _OTHER_LINES, min(MIN_LIST_ROWS, height // 4))
        cards = listed_agents(board, now, replace(look, pinned=self.selection.pinned))
        self._rows = selectable(board, cards)
        if not self._rows and self.selection.selected is not None:
            self._leave(None)
        hint = ""
        if self.selection.selected is not None:
            self.selection.index(self._rows)
            hint = "enter opens · esc back"
        elif self.enabled and self._rows:
            hint = "↓ to choose"
        look = replace(look, most=min(look.most, room), selected=self.selection.selected, hint=hint)
        self.show(agent_lines(board, cards, now, frame, look))

    def enter(self) -> bool:
        """Take the focus from an empty prompt. Return False if the list is empty."""
        if not self.enabled or not self.selection.enter(self._rows):
            return False
        self._editor = self.screen.focused
        self.can_focus = True
        self.focus()
        return True

    async def _on_key(self, event: events.Key) -> None:
        # Ctrl+C belongs to the app in every focus.
        if event.key == "ctrl+c":
            return
        event.stop()
        event.prevent_default()
        if self.selection.selected is None:
            # The key was sent before the editor got the focus back.
            self._pass_on(event)
        elif event.key in _MOVES:
            self.selection.move(_MOVES[event.key], self._rows)
            if self.selection.selected is None:
                self._leave(None)
        elif event.key == "enter":
            card = self.selection.chosen(self._rows)
            self._leave(card.id if card is not None else None)
        else:
            self._leave(None)
            if event.key not in ("escape", "left"):
                self._pass_on(event)

    def on_paste(self, event: events.Paste) -> None:
        """Pass a paste to the editor."""
        event.stop()
        self._leave(None)
        if self._editor is not None:
            self._editor.post_message(events.Paste(event.text))

    def on_blur(self) -> None:
        """Leave the list, because another widget took the focus."""
        self.selection.leave()

    def on_focus(self) -> None:
        """Keep the focus only after `enter`. When the terminal window regains the focus, the editor gets it."""
        if self.selection.selected is None:
            self._leave(None)

    def _leave(self, run_id: str | None) -> None:
        self.selection.leave()
        self.can_focus = False
        self.screen.set_focus(self._editor)
        self.post_message(self.Chosen(run_id))

    def _pass_on(self, event: events.Key) -> None:
        if self._editor is not None:
            self._editor.post_message(events.Key(event.key, event.character))
