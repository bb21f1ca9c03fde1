"""What the app has before anything is in it: a crew, colours, keys, screens, and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import work
from textual.app import App
from textual.binding import BindingType

from retinue.faces.api import Retinue
from retinue.faces.tui import keys, theme
from retinue.faces.tui.chat.folded import Folded
from retinue.faces.tui.commands import COMMANDS, SlashCommand
from retinue.faces.tui.doors import DOORS, Door
from retinue.faces.tui.leaving import Leaving, live_runs, way_out
from retinue.faces.tui.panels.banner import Banner

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp


class Frame(App[Leaving]):
    """`facts` are further facts for the status line, `banner` says what waits."""

    CSS_PATH = Path(__file__).with_name("app.tcss")
    TITLE = "retinue"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, crew: Retinue, *, may_keep: bool = False) -> None:
        super().__init__()
        if self.no_color:
            theme.take_colours(self._filters)
        self.crew = crew
        self.world = crew.supervisor.world
        settings = crew.supervisor.settings
        self.motion = theme.wants_motion(self.world.environment) and not settings.reduced_motion
        self.animation_level = "full" if self.motion else "none"
        self.keys, self.key_problems = keys.chosen(settings.keys, settings.abort_resend_key)
        self.facts: dict[str, Any] = {}
        self.banner = Banner()
        self._may_keep = may_keep

    def furnish(self) -> None:
        """Colours, keys and screens, once the app is on the terminal."""
        for each in theme.THEMES:
            self.register_theme(each)
        self.use_theme(self.crew.supervisor.settings.theme)
        for key in self.keys:
            self._bindings.bind(key.key, key.action, key.help, show=False, priority=key.always)
        for door in DOORS.values():
            self._hang(door)

    def use_theme(self, choice: str) -> None:
        chosen = theme.named(choice, self.world.environment)
        theme.use(chosen, colour=not self.no_color)
        self.theme = chosen.name
        for block in self.query(Folded):
            block.redraw()

    async def visit(self, name: str, *arguments: Any) -> Any:
        """Opens a screen of the table and gives what it was closed with. From a worker only."""
        return await self.push_screen_wait(DOORS[name].screen(*arguments))

    @work
    async def action_visit(self, name: str) -> None:
        if len(self.screen_stack) == 1:
            await self.visit(name)

    @work
    async def watch_run(self, run_id: str) -> None:
        """Opens the viewer on any run of the project's log."""
        await self.visit("viewer", run_id)

    def _hang(self, door: Door) -> None:
        """Its key and its command lead to a screen from here on."""
        if door.key:
            self.bind(door.key, f"visit('{door.name}')", description=door.help, show=False)
        if door.command:

            async def go(app: RetinueApp, rest: str) -> None:
                await app.visit(door.name, *([rest] if rest else []))

            COMMANDS[door.command] = SlashCommand(door.command, door.help, go, door.arguments)

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    async def action_quit(self) -> None:
        self.leave_later()

    @work(exclusive=True, group="leaving")
    async def leave_later(self) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Asks what becomes of runs that live, and closes the app unless the person stays."""
        app = cast("RetinueApp", self)
        way = await way_out(app, live_runs(self.crew.supervisor), may_keep=self._may_keep)
        if way is not None:
            self.exit(way)
