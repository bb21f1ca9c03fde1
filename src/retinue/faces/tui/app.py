"""The terminal app: what is on the screen, which key does what. All work happens elsewhere."""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from retinue.domain.events import Event, RunEnded
from retinue.errors import RetinueError
from retinue.faces.api import Retinue
from retinue.faces.tui import builtin_commands, parts, theme  # noqa: F401 - registers its commands
from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.marks import FRAME_SECONDS
from retinue.faces.tui.board.widget_lines import Look
from retinue.faces.tui.chat.blocks import Notice, Said
from retinue.faces.tui.chat.log import ChatLog
from retinue.faces.tui.commands import COMMANDS, SlashCommand, parse
from retinue.faces.tui.doors import DOORS, Door
from retinue.faces.tui.editor.prompt import Prompt
from retinue.faces.tui.feed import Feed
from retinue.faces.tui.panels.banner import Banner
from retinue.faces.tui.panels.fleet import FleetPanel
from retinue.faces.tui.panels.live_widget import LiveWidget
from retinue.faces.tui.panels.status_line import StatusLine
from retinue.faces.tui.parts import Part
from retinue.faces.tui.session import Session

PAINT_SECONDS = 0.05


class RetinueApp(App[int]):
    """One window on one crew, which the caller has opened and closes. `resume` is a run to go on
    with; the other options are those of the main agent's run."""

    CSS_PATH = "app.tcss"
    TITLE = "retinue"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "interrupt", priority=False),
        Binding("ctrl+c", "leave", "quit", priority=True),
    ]

    def __init__(self, crew: Retinue, *, resume: str | None = None, **options: Any) -> None:
        super().__init__()
        self.crew = crew
        self.board = Board()
        self.session = Session(crew, changed=self._session_changed, **options)
        self.feed = Feed(crew.supervisor.world.log, self._take)
        self.motion = theme.wants_motion(os.environ)
        self._resume = resume
        self._leave_at = 0.0
        self._chat = ChatLog()
        self._live = LiveWidget()
        self._fleet = FleetPanel()
        self._status = StatusLine()
        self._parts: list[Part] = []
        self.facts: dict[str, Any] = {}
        self.banner = Banner()

    def compose(self) -> ComposeResult:
        yield self._chat
        yield self._live
        yield self.banner
        yield Prompt()
        yield self._fleet
        yield self._status

    async def on_mount(self) -> None:
        for each in theme.THEMES:
            self.register_theme(each)
        self.theme = theme.DARK.name
        theme.use(theme.DARK, colour=theme.wants_colour(os.environ))
        self._parts = parts.made(self)
        for door in DOORS.values():
            self._hang(door)
        self.feed.open()
        self.set_interval(PAINT_SECONDS, self._paint)
        self.query_one(Prompt).focus()
        if self._resume:
            await self.open_session(self._resume)

    async def on_unmount(self) -> None:
        await self.feed.close()
        for part in self._parts:
            await part.close()

    async def visit(self, name: str, *arguments: Any) -> Any:
        """Opens a screen of the table and gives what it was closed with. From a worker only."""
        return await self.push_screen_wait(DOORS[name].screen(*arguments))

    @work
    async def action_visit(self, name: str) -> None:
        await self.visit(name)

    def _hang(self, door: Door) -> None:
        """Its key and its command lead to a screen from here on."""
        if door.key:
            self.bind(door.key, f"visit('{door.name}')", description=door.help, show=False)
        if door.command:

            async def go(app: RetinueApp, rest: str) -> None:
                await app.visit(door.name, *([rest] if rest else []))

            COMMANDS[door.command] = SlashCommand(door.command, door.help, go, door.arguments)

    async def open_session(self, run_id: str) -> None:
        """Shows an earlier conversation and goes on with it."""
        row = self.crew.supervisor.world.log.reader.run(run_id)
        await self._chat.empty()
        self.session.open(row.id)
        self.board.main_id = row.id
        for event in self.crew.supervisor.world.log.reader.events(row.id):
            await self._chat.take(event)

    def tell(self, text: str, kind: str = "info") -> None:
        """A line in the conversation that is the app's own."""
        self._chat.add(Notice(text, kind))

    async def empty_chat(self) -> None:
        await self._chat.empty()

    def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        found = parse(message.text)
        if found is not None and found[0] in COMMANDS:
            self._command(*found)
        elif found is not None:
            self.tell(f"There is no command /{found[0]}. See /help.", "warning")
        else:
            self._say(message.text)

    def on_prompt_leaving(self, message: Prompt.Leaving) -> None:
        self._fleet.enter()

    def on_fleet_panel_chosen(self, message: FleetPanel.Chosen) -> None:
        self.query_one(Prompt).focus()
        if message.run_id is not None:
            self.watch_run(message.run_id)

    @work
    async def watch_run(self, run_id: str) -> None:
        """Opens the viewer on any run of the project's log."""
        await self.visit("viewer", run_id)

    def action_interrupt(self) -> None:
        self.session.interrupt()

    def action_leave(self) -> None:
        """The first press clears the line or warns, the second within two seconds leaves."""
        prompt = self.query_one(Prompt)
        if prompt.text:
            prompt.text = ""
        elif time.monotonic() - self._leave_at < 2:
            self.exit(0)
        else:
            self._leave_at = time.monotonic()
            self._status.show("Press Ctrl+C again to quit.")

    @work
    async def _command(self, name: str, rest: str) -> None:
        try:
            await COMMANDS[name].handler(self, rest)
        except RetinueError as error:
            self.tell(f"{error.message} {error.remedy}".strip(), "error")

    @work
    async def _say(self, text: str) -> None:
        try:
            if await self.session.say(text) == "queued":
                self._chat.add(Said(text, queued=True))
            self.board.main_id = self.session.main_id
        except RetinueError as error:
            self.tell(f"{error.message} {error.remedy}".strip(), "error")
            prompt = self.query_one(Prompt)
            prompt.text = prompt.text or text

    def _take(self, event: Event) -> None:
        self.board.take(event)
        for part in self._parts:
            part.take(event)
        if event.run_id == self.session.main_id:
            self.session.observe(event)
            self._chat.push(event)
            if isinstance(event.body, RunEnded):
                self._pump()

    @work
    async def _pump(self) -> None:
        await self.session.pump()

    def _session_changed(self) -> None:
        self.board.changed = True

    def _paint(self) -> None:
        now = time.time()
        frame = int(time.monotonic() / FRAME_SECONDS)
        settings = self.crew.supervisor.settings
        look = Look(
            width=self.size.width - 2,
            mode=settings.widget_mode,
            display=settings.widget_display_mode,
            show_cost=settings.show_cost,
            motion=self.motion,
            max_depth=settings.max_subagent_depth,
        )
        self._live.paint(self.board, now, frame, look)
        self._fleet.paint(self.board, now, frame, motion=self.motion)


async def run_app(crew: Retinue, **options: Any) -> int:
    """Shows the app until the person leaves it. The terminal is restored however it ends."""
    app = RetinueApp(crew, **options)
    await app.run_async()
    return app.return_code or 0
