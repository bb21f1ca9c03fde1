"""The /agents menu: who runs, which types there are, a new one, settings and jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Static

from retinue.faces.tui.screens.agents_rows import counted, menu_rows, running_rows
from retinue.faces.tui.screens.sheet import Rows, Sheet

LOOK_SECONDS = 0.5


class AgentsScreen(Sheet[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f3", "close", show=False), Binding("n", "create", "new agent")]
    heading = "Agents"
    keys_line = "Enter open · n new agent · Esc back"

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self._draw()
        self.set_interval(LOOK_SECONDS, self._draw)

    def on_screen_resume(self) -> None:
        self._draw()

    def on_option_list_option_selected(self, message: Rows.OptionSelected) -> None:
        match message.option_id:
            case "running":
                self.app.push_screen(RunningScreen())
            case "types":
                from retinue.faces.tui.screens.agents_types import TypesScreen

                self.app.push_screen(TypesScreen())
            case "create":
                self.action_create()
            case "settings" | "schedules" as name:
                self.do(self.host.visit(name))
            case _:
                pass

    def action_create(self) -> None:
        self.do(self._create())

    async def _create(self) -> None:
        from retinue.faces.tui.screens.wizard import create_agent

        said = await create_agent(self.host)
        if said is not None:
            self.say(said.text, said.kind)

    def _draw(self) -> None:
        if not self.is_current:
            return
        crew = self.host.crew
        scheduling = crew.supervisor.settings.scheduling_enabled and crew.schedules.active
        jobs = len(crew.schedules.jobs()) if scheduling else None
        self.query_one(Rows).fill(menu_rows(self.host.board.agents(), crew.agents, jobs, self.room))


class RunningScreen(Sheet[None]):
    """Every agent of this session; one that is chosen is watched."""

    heading = "Running agents"
    keys_line = "Enter watch · Esc back"

    def body(self) -> Iterable[Static | Rows]:
        yield Rows()

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self._draw()
        self.set_interval(LOOK_SECONDS, self._draw)

    def on_option_list_option_selected(self, message: Rows.OptionSelected) -> None:
        if message.option_id is not None:
            self.host.watch_run(message.option_id)

    def _draw(self) -> None:
        if not self.is_current:
            return
        cards = list(self.host.board.agents())
        self.head(f"Running agents · {counted(cards)}")
        self.query_one(Rows).fill(running_rows(cards, self.room))
