"""Agent types: what each is, and changing the file it comes from."""

from __future__ import annotations

import asyncio
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from retinue.agents import manage
from retinue.agents.catalog import Catalog, FailedFile, LoadedAgent
from retinue.agents.create import agents_folder, file_name
from retinue.agents.discover import PluginFolder
from retinue.agents.remove import Removed, own_files, remove, reset
from retinue.faces.text import optional
from retinue.faces.tui.screens.agents import FAILED, Label, about, about_failed, actions, model_labels, type_rows
from retinue.faces.tui.screens.dialogs import Pick, confirm
from retinue.faces.tui.screens.external_editor import edit_agent
from retinue.faces.tui.screens.sheet import ListSheet, Rows

PLACES = (("project", "Project: .retinue/agents, shared with the repository"), ("user", "Personal: for all your work"))


class TypesScreen(ListSheet[None]):
    DEFAULT_CSS = "TypesScreen #about { height: auto; min-height: 4; max-height: 9; }"
    look_seconds = 1.0
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

    @cached_property
    def _label(self) -> Label:
        from retinue.models.providers import Providers
        from retinue.models.resolve import Resolver

        return model_labels(Resolver(Providers(self.project.settings.settings, self.project.environment)))

    def on_option_list_option_selected(self) -> None:
        self.do(self._choose())

    def action_act(self, action: str) -> None:
        self.do(self._perform(action))

    def action_switch(self) -> None:
        entry = self._entry
        if entry is not None:
            action = "disable" if entry.enabled else "enable"
            self.do(self._perform(action))

    def action_create(self) -> None:
        from retinue.faces.tui.screens.wizard import create_on

        self.do(create_on(self))

    # What is shown

    @property
    def _entry(self) -> LoadedAgent | None:
        chosen = self.query_one(Rows).chosen
        for entry in self._catalog.winners:
            if entry.name == chosen:
                return entry
        return None

    @property
    def _failed(self) -> FailedFile | None:
        chosen = self.query_one(Rows).chosen
        for each in self._catalog.failed:
            if FAILED + each.path == chosen:
                return each
        return None

    def draw(self) -> None:
        self._catalog = self.retinue.agents
        there = len(self._catalog.winners)
        disabled = there - len(self._catalog.agents)
        self.head(f"Agent types · {there}{optional(' · {} disabled', disabled)}")
        self.query_one(Rows).fill(type_rows(self._catalog, self._label, self.room))

    def about(self) -> Text | str:
        entry, failed = self._entry, self._failed
        if entry is not None:
            return about(entry, self._catalog, self._label, self._cwd)
        if failed is not None:
            return about_failed(failed, self._cwd)
        return ""

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
        if action not in dict(actions(entry, self._catalog)):
            self.say(
                f"{entry.name} comes from {entry.source}: {action} is not possible. Enter shows what is.", "warning"
            )
            return
        await getattr(self, f"_{action}")(entry)
        if self.is_mounted:
            self.redraw()

    async def _show(self, entry: LoadedAgent) -> None:
        await self.host.open_screen("toolkit", f"agent {entry.name}")

    async def _edit(self, entry: LoadedAgent | Path) -> None:
        if isinstance(entry, LoadedAgent):
            entry = manage.locate(entry, self._cwd)
        said = await edit_agent(self.host, entry)
        self.say(said.text, said.kind)

    async def _disable(self, entry: LoadedAgent) -> None:
        self._tell(await asyncio.to_thread(manage.disable, entry.name, self._cwd, plugins=self._plugins), "disabled")

    async def _enable(self, entry: LoadedAgent) -> None:
        self._tell(await asyncio.to_thread(manage.enable, entry.name, self._cwd, plugins=self._plugins), "enabled")

    def _tell(self, done: manage.Toggled, state: str) -> None:
        path = self.near(done.path)
        how = f"in {path}"
        if done.action == "stub-written":
            how = f"{path} hides it"
        elif done.action == "stub-deleted":
            how = f"deleted {path}"
        if done.changed:
            self.say(f"{done.name} is {state}: {how}.")
        else:
            self.say(f"{done.name} was {state} already.")

    async def _eject(self, entry: LoadedAgent) -> None:
        where = await self.app.push_screen_wait(Pick(f"Eject {entry.name} to", PLACES))
        if where is None:
            return
        user = where == "user"
        path = agents_folder("retinue", self._cwd, user=user) / file_name(entry.name, "retinue")
        force = path.exists()
        question = f"Replace {self.near(path)}?"
        if force and not await confirm(self.app, question, "Its content is lost.", "Replace it"):
            return
        done = await asyncio.to_thread(
            manage.eject, entry.name, self._cwd, user=user, force=force, plugins=self._plugins
        )
        lost = optional(" Not said in the copy: {}.", ", ".join(loss.field for loss in done.losses))
        kind = "warning" if lost else "success"
        self.say(f"{entry.name} is yours now: {self.near(done.path)}.{lost} e edits it.", kind)

    async def _delete(self, entry: LoadedAgent) -> None:
        path = Path(entry.path)
        question, detail = f"Delete the agent {entry.name}?", f"{self.near(path)} is deleted for good."
        if await confirm(self.app, question, detail, "Delete it"):
            self._tell_removed(await asyncio.to_thread(remove, entry.name, self._cwd, path))

    async def _reset(self, entry: LoadedAgent) -> None:
        paths = own_files(self._catalog, entry)
        listed = "\n".join(f"{self.near(path)} is deleted for good." for path in paths)
        if await confirm(self.app, f"Reset {entry.name} to the built-in agent?", listed, "Reset it"):
            self._tell_removed(await asyncio.to_thread(reset, entry.name, self._cwd, paths))

    def _tell_removed(self, removed: Removed) -> None:
        text = f"Deleted {', '.join(map(self.near, removed.paths))}."
        now = removed.instead
        if now is not None:
            text += f" {removed.name} comes from {self.near(now.path)} now ({now.source})."
        self.say(text, "success")

    @property
    def _plugins(self) -> tuple[PluginFolder, ...]:
        return tuple(self.project.extensions.agents)

    @property
    def _cwd(self) -> Path:
        return self.project.cwd
