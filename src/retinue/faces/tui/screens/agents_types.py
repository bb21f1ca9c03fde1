"""Agent types: what each is, and changing the file it comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from retinue.agents import manage
from retinue.agents.catalog import Catalog, FailedFile, LoadedAgent
from retinue.agents.create import agents_folder, file_name
from retinue.agents.discover import PluginFolder
from retinue.agents.remove import Removed, own_files, remove, reset
from retinue.faces.tui.screens.agents import FAILED, about, about_failed, actions, model_labels, type_rows
from retinue.faces.tui.screens.dialogs import ConfirmScreen, Pick
from retinue.faces.tui.screens.external_editor import edit_agent
from retinue.faces.tui.screens.sheet import Rows, Sheet

LOOK_SECONDS = 1.0
PLACES = (("project", "Project: .retinue/agents, shared with the repository"), ("user", "Personal: for all your work"))


class TypesScreen(Sheet[None]):
    DEFAULT_CSS = """
    TypesScreen #about { height: auto; min-height: 4; max-height: 9; padding: 0 1; border-top: solid $panel;
        scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "act('edit')", "edit"),
        Binding("d", "switch", "disable or enable"),
        Binding("delete", "act('delete')", "delete"),
        Binding("n", "create", "new agent"),
    ]
    heading = "Agent types"
    keys_line = (
        "• project  ◦ personal  ✕ disabled\nEnter actions · e edit · d disable/enable · Del delete · n new · Esc back"
    )

    def __init__(self) -> None:
        super().__init__()
        self._catalog = Catalog((), ())
        self._ways: dict[str, Callable[[LoadedAgent], Awaitable[None]]] = {
            "show": self._show,
            "edit": self._edit,
            "eject": self._eject,
            "disable": self._disable,
            "enable": self._enable,
            "reset": self._reset,
            "delete": self._delete,
        }

    def body(self) -> Iterable[Static | Rows]:
        yield Rows()
        with VerticalScroll(id="about", can_focus=False):
            yield Static()

    def on_mount(self) -> None:
        from retinue.models.providers import Providers
        from retinue.models.resolve import Resolver

        project = self.host.retinue.supervisor.project
        self._label = model_labels(Resolver(Providers(project.settings.settings, project.environment)))
        self.query_one(Rows).focus()
        self._draw()
        self.set_interval(LOOK_SECONDS, self._draw)

    def on_screen_resume(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_option_list_option_highlighted(self) -> None:
        self._about()

    def on_option_list_option_selected(self) -> None:
        self.do(self._choose())

    def action_act(self, action: str) -> None:
        self.do(self._perform(action))

    def action_switch(self) -> None:
        entry = self._entry
        if entry is not None:
            self.do(self._perform("disable" if entry.enabled else "enable"))

    def action_create(self) -> None:
        self.do(self._create())

    # What is shown

    @property
    def _entry(self) -> LoadedAgent | None:
        name = self.query_one(Rows).chosen
        return next((entry for entry in self._catalog.winners if entry.name == name), None)

    @property
    def _failed(self) -> FailedFile | None:
        chosen = self.query_one(Rows).chosen or ""
        return next((each for each in self._catalog.failed if FAILED + each.path == chosen), None)

    def _draw(self) -> None:
        if not self.is_current:
            return
        self._catalog = self.host.retinue.agents
        usable, there = len(self._catalog.agents), len(self._catalog.winners)
        self.head(f"Agent types · {there}" + (f" · {there - usable} disabled" if usable != there else ""))
        self.query_one(Rows).fill(type_rows(self._catalog, self._label, self.room))
        self._about()

    def _about(self) -> None:
        entry, failed = self._entry, self._failed
        box = self.query_one("#about Static", Static)
        if entry is not None:
            box.update(about(entry, self._catalog, self._label, self._cwd))
        else:
            box.update(about_failed(failed, self._cwd) if failed is not None else "")

    # What is done

    async def _choose(self) -> None:
        entry = self._entry
        if entry is None:
            await self._perform("edit")
            return
        action = await self.app.push_screen_wait(
            Pick(entry.name, actions(entry, self._catalog), detail=self.near(entry.path))
        )
        if action is not None:
            await self._perform(action)

    async def _perform(self, action: str) -> None:
        entry, failed = self._entry, self._failed
        if entry is None:
            if failed is not None and action == "edit":
                await self._edit(Path(failed.path))
            return
        if action not in [name for name, _ in actions(entry, self._catalog)]:
            self.say(
                f"{entry.name} comes from {entry.source}: {action} is not possible. Enter shows what is.", "warning"
            )
            return
        await getattr(self, f"_{action}")(entry)
        if self.is_mounted:
            self._draw()

    async def _show(self, entry: LoadedAgent) -> None:
        await self.host.visit("toolkit", f"agent {entry.name}")

    async def _edit(self, entry: LoadedAgent | Path) -> None:
        path = manage.locate(entry, self._cwd) if isinstance(entry, LoadedAgent) else entry
        said = await edit_agent(self.host, path)
        self.say(said.text, said.kind)

    async def _disable(self, entry: LoadedAgent) -> None:
        done = await asyncio.to_thread(manage.disable, entry.name, self._cwd, plugins=self._plugins)
        how = f"{self.near(done.path)} hides it" if done.action == "stub-written" else f"in {self.near(done.path)}"
        self.say(f"{entry.name} is disabled: {how}." if done.changed else f"{entry.name} was disabled already.")

    async def _enable(self, entry: LoadedAgent) -> None:
        done = await asyncio.to_thread(manage.enable, entry.name, self._cwd, plugins=self._plugins)
        how = f"deleted {self.near(done.path)}" if done.action == "stub-deleted" else f"in {self.near(done.path)}"
        self.say(f"{entry.name} is enabled: {how}." if done.changed else f"{entry.name} was enabled already.")

    async def _eject(self, entry: LoadedAgent) -> None:
        where = await self.app.push_screen_wait(Pick(f"Eject {entry.name} to", PLACES))
        if where is None:
            return
        user = where == "user"
        path = agents_folder("retinue", self._cwd, user=user) / file_name(entry.name, "retinue")
        force = path.exists()
        if force and not await self._sure(f"Replace {self.near(path)}?", "Its content is lost.", "Replace it"):
            return
        done = await asyncio.to_thread(
            manage.eject, entry.name, self._cwd, user=user, force=force, plugins=self._plugins
        )
        lost = f" Not said in the copy: {', '.join(loss.field for loss in done.losses)}." if done.losses else ""
        self.say(
            f"{entry.name} is yours now: {self.near(done.path)}.{lost} e edits it.", "warning" if lost else "success"
        )

    async def _delete(self, entry: LoadedAgent) -> None:
        path = Path(entry.path)
        if await self._sure(f"Delete the agent {entry.name}?", f"{self.near(path)} is deleted for good.", "Delete it"):
            self._gone(await asyncio.to_thread(remove, entry.name, self._cwd, path))

    async def _reset(self, entry: LoadedAgent) -> None:
        paths = own_files(self._catalog, entry)
        listed = "\n".join(f"{self.near(path)} is deleted for good." for path in paths)
        if await self._sure(f"Reset {entry.name} to the built-in agent?", listed, "Reset it"):
            self._gone(await asyncio.to_thread(reset, entry.name, self._cwd, paths))

    async def _create(self) -> None:
        from retinue.faces.tui.screens.wizard import create_agent

        said = await create_agent(self.host)
        if said is not None:
            self.say(said.text, said.kind)
        self._draw()

    def _gone(self, removed: Removed) -> None:
        what = ", ".join(self.near(path) for path in removed.paths)
        now = removed.instead
        rest = "" if now is None else f" {removed.name} comes from {self.near(now.path)} now ({now.source})."
        self.say(f"Deleted {what}.{rest}", "success")

    async def _sure(self, question: str, detail: str, yes: str) -> bool:
        choices = [("no", "n", "Keep it"), ("yes", "y", yes)]
        return await self.app.push_screen_wait(ConfirmScreen(question, choices, detail)) == "yes"

    @property
    def _plugins(self) -> tuple[PluginFolder, ...]:
        return tuple(self.host.retinue.supervisor.project.extensions.agents)

    @property
    def _cwd(self) -> Path:
        return self.host.retinue.supervisor.project.cwd
