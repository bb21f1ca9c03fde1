"""The live transcript of one run, with a line to steer it and a key to stop it.

The run may belong to this process or to another one, or may have ended. Its event source hides the difference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import ClassVar, cast

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from retinue.app.model_choice import known_windows
from retinue.app.rich_text import Row
from retinue.app.run_events import ProcessLost, RunSource
from retinue.errors import RetinueError
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.board.marks import FRAME_SECONDS
from retinue.frontends.tui.board.story import RunStory
from retinue.frontends.tui.board.viewer import (
    Action,
    Moment,
    Pages,
    Viewer,
    bindings,
    box_rows,
    content_height,
    content_width,
)
from retinue.frontends.tui.frame import Frame, sentence
from retinue.frontends.tui.panels import AgentsPanel, LinesPanel
from retinue.frontends.tui.screens.rewind import fork_watched_run

WHEEL_ROWS = 3
QUIET_SECONDS = 0.25
SLICE_SECONDS = 0.005


class ViewerScreen(ModalScreen[None]):
    """A screen over the app. It stays open after its run has ended."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    DEFAULT_CSS = """
    ViewerScreen { align: center middle; }
    ViewerScreen > #viewer { width: 90%; height: 70%; min-height: 9; background: $surface; }
    ViewerScreen.whole { background: $surface; }
    ViewerScreen.whole > #viewer { width: 100%; height: 100%; }
    ViewerScreen #viewer-line { display: none; height: 1; border: none; padding: 0 2; background: $panel; }
    """

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.story = RunStory(RunCard(run_id))
        self.viewer = Viewer()
        self._pages = Pages()
        self._box = LinesPanel(id="viewer-box")
        self._line = Input(id="viewer-line", compact=True)
        self._note = ""
        self._painted = -1
        self._painted_at = 0.0
        self._more_due = False

    def compose(self) -> ComposeResult:
        with Vertical(id="viewer"):
            yield self._box
            yield self._line

    def on_mount(self) -> None:
        app = cast("Frame", self.app)
        self._settings = app.retinue.supervisor.settings
        self.viewer.keys = bindings(self._settings.keys)
        self._window = known_windows(self._settings.models)
        self._motion = app.motion
        self._source = RunSource(app.retinue.supervisor, app.feed, self.story.card.id)
        self._pin(self.story.card.id)
        app.beat.subscribe(self, self._look)
        self._follow()

    def on_unmount(self) -> None:
        self._pin(None)

    def _look(self, now: float) -> None:
        """Draw new steps."""
        # The clock and the spinner of a quiet run are drawn less often, because every change of an overlay makes
        # Textual draw the screen below it again.
        quiet = self.story.version == self._painted
        if not quiet or (self.story.card.live and time.monotonic() - self._painted_at >= QUIET_SECONDS):
            self.paint()

    def paint(self) -> None:
        """Draw the current state."""
        self._painted, self._painted_at = self.story.version, time.monotonic()
        holder = self.query_one("#viewer").size
        if not holder.width:
            return
        moment = self._moment()
        lines = self._lines(moment)
        height = holder.height - (self.viewer.mode != "reading")
        self.viewer.measure(len(lines), content_height(self.story.card, height))
        self._box.show(box_rows(self.story.card, self.viewer, lines, holder.width, moment, self._note))
        # A long run is drawn slice by slice. Between slices the event loop serves the keyboard and other runs.
        if self._pages.behind and not self._more_due:
            self._more_due = True
            self.set_timer(SLICE_SECONDS, self._paint_more)

    def _paint_more(self) -> None:
        self._more_due = False
        self.paint()

    def _moment(self) -> Moment:
        frame = int(time.monotonic() / FRAME_SECONDS)
        return Moment(time.time(), frame, self._settings.show_cost, self._motion, self._window)

    def _lines(self, moment: Moment) -> Sequence[Row]:
        width = content_width(self.query_one("#viewer").size.width)
        return self._pages.lines(self.story, self.viewer, width, moment)

    def on_resize(self) -> None:
        self.call_after_refresh(self.paint)

    def on_key(self, event: events.Key) -> None:
        if event.key == "ctrl+c":
            return
        if self.viewer.mode != "reading":
            self._typed(event)
            return
        event.stop()
        event.prevent_default()
        live = self.story.card.live
        self._note = ""
        if self.viewer.keys.get(event.key) in ("next", "previous"):
            self.viewer.find(self._lines(self._moment()))
        self._do(self.viewer.press(event.key, can_stop=live, can_steer=live))
        self.set_class(self.viewer.fullscreen, "whole")
        self.paint()

    def _typed(self, event: events.Key) -> None:
        """Handle keys that the input line did not take: Escape, and letters sent before the line got the focus."""
        if event.key == "escape":
            event.stop()
            self._read()
        elif event.is_printable and event.character:
            event.stop()
            self._line.insert_text_at_cursor(event.character)

    def on_mouse_scroll_up(self) -> None:
        self.viewer.scroll(-WHEEL_ROWS)
        self.paint()

    def on_mouse_scroll_down(self) -> None:
        self.viewer.scroll(WHEEL_ROWS)
        self.paint()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        text, mode = message.value.strip(), self.viewer.mode
        self._read()
        if mode == "searching":
            self.viewer.search(text, self._lines(self._moment()))
            self.paint()
        elif text:
            self._steer(text)

    def _do(self, action: Action | None) -> None:
        match action:
            case "close":
                self.dismiss(None)
            case "stop":
                self._stop()
            case "compose":
                self._type("Say to it, after its current tool calls. Enter sends, Esc cancels.")
            case "search":
                self._type("Find in this view. Enter finds, Esc cancels.")
            case "fork":
                app = cast("Frame", self.app)
                self.dismiss(None)
                # A worker of this screen would end with it.
                app.run_worker(fork_watched_run(app, self.story.card.id))
            case None:
                pass

    def _type(self, hint: str) -> None:
        self._line.placeholder, self._line.value = hint, ""
        self._line.display = True
        self.set_focus(self._line)

    def _read(self) -> None:
        self.viewer.read()
        self._line.display = False
        self.set_focus(None)
        self.paint()

    @work(group="viewer orders")
    async def _steer(self, text: str) -> None:
        await self._tell(await self._source.steer(text))

    @work(group="viewer orders")
    async def _stop(self) -> None:
        await self._tell(await self._source.stop())

    async def _tell(self, text: str) -> None:
        self._note = text
        self.paint()

    @work(exclusive=True, group="viewer")
    async def _follow(self) -> None:
        """Take events as they arrive. If the log cannot be read, show that in the viewer."""
        try:
            row = await self._source.row()
            card = self.story.card
            card.parent_id, card.root_id = row.parent_id, row.root_id
            async with aclosing(self._source.events()) as stream:
                async for event in stream:
                    if isinstance(event, ProcessLost):
                        self.story.mark_lost(event.at)
                    else:
                        self.story.take(event)
        except RetinueError as error:
            self._note = sentence(error)
        self.paint()

    def _pin(self, run_id: str | None) -> None:
        """Keep the row of the run in the list of agents while its viewer is open."""
        for panel in self.app.screen_stack[0].query(AgentsPanel):
            panel.selection.pinned = run_id
