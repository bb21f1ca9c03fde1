"""The /agents menu: running agents, agent types, a new agent, settings and scheduled jobs.

The screen of the types describes each type, and changes its agent file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType

from retinue.app.agent_files import (
    OWN_SOURCES,
    PluginFolder,
    Removed,
    agents_folder,
    file_name,
    manage,
    own_files,
    remove,
    reset,
)
from retinue.app.agents import Catalog, FailedFile, LoadedAgent, named_tools, shadows, tools_text
from retinue.app.model_choice import ModelLabels, providers_of
from retinue.app.rich_text import STYLES, one_line
from retinue.app.text import optional, status_word
from retinue.frontends.tui.board.board import counts
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.board.marks import icon
from retinue.frontends.tui.screens.dialogs import Pick, confirm
from retinue.frontends.tui.screens.external_editor import edit_agent
from retinue.frontends.tui.screens.sheet import HEADING, ListSheet, Row, Rows, columns, near
from retinue.frontends.tui.screens.wizard import PLACES, create_on

# The prefix of row ids of files that could not be loaded.
FAILED = "failed: "
_MARKS = {"project": "•", "user": "◦"}
_WORDS = {
    "edit": "Edit the file",
    "eject": "Eject: a copy of your own, to change",
    "disable": "Disable",
    "enable": "Enable",
    "reset": "Reset to default: delete your file, the built-in agent counts again",
    "delete": "Delete the file",
    "show": "Show everything about it",
}

Label = Callable[[LoadedAgent], str]


def menu_rows(cards: Iterable[RunCard], catalog: Catalog, jobs: int | None, room: int) -> list[Row]:
    """Return the rows of the first page. `jobs` is None if this process schedules nothing."""
    agents = list(cards)
    rows: list[tuple[str, str]] = []
    if agents:
        rows.append(("running", f"Running agents ({len(agents)}) — {counted(agents)}"))
    rows.append(("types", f"Agent types ({len(catalog.winners)})"))
    if jobs is not None:
        rows.append(("schedules", f"Scheduled jobs ({jobs})"))
    rows += [("create", "Create new agent"), ("settings", "Settings")]
    return [(key, columns([(words, 0, "")], room)) for key, words in rows]


def counted(cards: Sequence[RunCard]) -> str:
    """Return the numbers of working, queued and finished agents."""
    running, queued = counts(cards)
    return f"{running} running, {optional('{} queued, ', queued)}{len(cards) - running - queued} done"


def running_rows(cards: Iterable[RunCard], room: int) -> list[Row]:
    """Return the agents as rows: live ones before ended ones, and newest first."""
    ordered = sorted(cards, key=lambda card: (not card.live, -(card.began or card.created_at)))
    rows = []
    for card in ordered:
        sign, meaning = icon(card, 0, motion=False)
        doing = card.activity() if card.at_work else status_word(card.status)
        cells = [(sign, 1, meaning), (card.label, 18, ""), (doing, 24, "dim"), (card.about, 0, "")]
        rows.append((card.id, columns(cells, room)))
    return rows


def mark(entry: LoadedAgent) -> str:
    """Return `•` for an agent of the project, `◦` for one of the user, `✕` for a disabled one; nothing for others."""
    if not entry.enabled:
        return "✕"
    return _MARKS.get(entry.source, " ")


def type_rows(catalog: Catalog, label: Label, room: int) -> list[Row]:
    """Return every agent by name, then the files that could not be loaded."""
    winners = sorted(catalog.winners, key=lambda entry: entry.name.casefold())
    wide = min(max((len(entry.name) for entry in winners), default=0), 22)
    rows: list[Row] = []
    for entry in winners:
        sign, meaning = ("accent", "") if entry.enabled else ("dim", "dim")
        cells = [
            (mark(entry), 1, sign),
            (entry.name, wide, meaning),
            (label(entry), 20, "dim"),
            (entry.spec.description, 0, meaning),
        ]
        rows.append((entry.name, columns(cells, room)))
    broken = [failed for failed in catalog.failed if failed.problem.severity == "error"]
    if broken:
        rows.append((f"{HEADING}failed", Text(" ")))
    for failed in broken:
        cells = [("!", 1, "error"), (Path(failed.path).name, 22, "error"), (failed.reason, 0, "")]
        rows.append((FAILED + failed.path, columns(cells, room)))
    return rows


def actions(entry: LoadedAgent, catalog: Catalog) -> list[tuple[str, str]]:
    """Return the actions for an agent, as (action, label)."""
    own = entry.source in OWN_SOURCES
    if entry.source == "policy":
        names = ["eject"]
    elif not entry.enabled:
        names = ["enable"]
    elif own:
        names = ["edit", "disable"]
    else:
        names = ["eject", "disable"]
    if own and not entry.enabled:
        names.append("edit")
    elif own and own_files(catalog, entry):
        names.append("reset")
    if own:
        names.append("delete")
    return [(action, _WORDS[action]) for action in [*names, "show"]]


def about(entry: LoadedAgent, catalog: Catalog, label: Label, cwd: Path) -> Text:
    """Return the description of an agent, for a person who may change it."""
    spec, parsed = entry.spec, entry.parsed
    state = "" if entry.enabled else " · switched off"
    text = Text()
    text.append(one_line(spec.description) or "(no description)")
    text.append(f"\n{entry.source}, {parsed.dialect}{state} · {one_line(near(entry.path, cwd))}", STYLES["dim"])
    text.append(f"\ntools {one_line(tools_text(named_tools(entry)))} · model {label(entry)}", STYLES["dim"])
    if spec.readonly:
        text.append(" · read-only", STYLES["dim"])
    for other in shadows(catalog.entries, entry):
        text.append(f"\nreplaces {one_line(near(other.path, cwd))} ({other.source})", STYLES["dim"])
    for problem in entry.problems:
        text.append(f"\n{problem.severity}: {one_line(problem.message)}", STYLES["warning"])
    return text


def about_failed(failed: FailedFile, cwd: Path) -> Text:
    text = Text()
    text.append(f"{one_line(near(failed.path, cwd))}:{failed.line or 1}", STYLES["error"])
    text.append(f"\n{one_line(failed.reason)}")
    if failed.problem.remedy:
        text.append(f"\n{one_line(failed.problem.remedy)}", STYLES["dim"])
    return text


class AgentsScreen(ListSheet[None]):
    DEFAULT_CSS = "AgentsScreen #about { display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f3", "close", show=False), Binding("n", "create", "new agent")]
    look_seconds = 0.5
    heading = "Agents"
    keys_line = "Enter open · n new agent · Esc back"

    def on_option_list_option_selected(self, message: Rows.OptionSelected) -> None:
        match message.option_id:
            case "running":
                self.app.push_screen(RunningScreen())
            case "types":
                self.app.push_screen(TypesScreen())
            case "create":
                self.action_create()
            case "settings" | "schedules" as name:
                self.do(self.host.open_screen(name))
            case _:
                pass

    def action_create(self) -> None:
        self.do(create_on(self))

    def draw(self) -> None:
        retinue = self.retinue
        jobs = None
        if retinue.supervisor.settings.scheduling_enabled and retinue.schedules.active:
            jobs = len(retinue.schedules.jobs())
        self.rows.fill(menu_rows(self.host.board.agents(), retinue.agents, jobs, self.room))


class RunningScreen(ListSheet[None]):
    """Every agent of this session. Choosing one opens its viewer."""

    DEFAULT_CSS = "RunningScreen #about { display: none; }"
    look_seconds = 0.5
    heading = "Running agents"
    keys_line = "Enter watch · Esc back"

    def on_option_list_option_selected(self, message: Rows.OptionSelected) -> None:
        if message.option_id is not None:
            self.host.watch_run(message.option_id)

    def draw(self) -> None:
        cards = list(self.host.board.agents())
        self.head(f"Running agents · {counted(cards)}")
        self.rows.fill(running_rows(cards, self.room))


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

    def on_mount(self) -> None:
        super().on_mount()
        self._ask_servers()

    @cached_property
    def _label(self) -> ModelLabels:
        return ModelLabels(providers_of(self.project))

    @work
    async def _ask_servers(self) -> None:
        """Show the models again when the servers have listed theirs."""
        await self._label.ask_servers(self.project.transport)
        if self.is_mounted:
            self.draw()

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
        self.do(create_on(self))

    # Display

    @property
    def _entry(self) -> LoadedAgent | None:
        chosen = self.chosen
        for entry in self._catalog.winners:
            if entry.name == chosen:
                return entry
        return None

    @property
    def _failed(self) -> FailedFile | None:
        chosen = self.chosen
        for failed in self._catalog.failed:
            if FAILED + failed.path == chosen:
                return failed
        return None

    def draw(self) -> None:
        self._catalog = self.retinue.agents
        there = len(self._catalog.winners)
        disabled = there - len(self._catalog.agents)
        self.head(f"Agent types · {there}{optional(' · {} disabled', disabled)}")
        self.rows.fill(type_rows(self._catalog, self._label, self.room))

    def about(self) -> Text | str:
        entry, failed = self._entry, self._failed
        if entry is not None:
            return about(entry, self._catalog, self._label, self._cwd)
        if failed is not None:
            return about_failed(failed, self._cwd)
        return ""

    # Actions

    async def _choose(self) -> None:
        entry = self._entry
        if entry is None:
            await self._perform("edit")
            return
        action = await self.ask(Pick(entry.name, actions(entry, self._catalog), detail=self.near(entry.path)))
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
        feedback = await edit_agent(self.host, entry)
        self.say(feedback.text, feedback.kind)

    async def _disable(self, entry: LoadedAgent) -> None:
        self._tell(await asyncio.to_thread(manage.disable, entry.name, self._cwd, plugins=self._plugins), "disabled")

    async def _enable(self, entry: LoadedAgent) -> None:
        self._tell(await asyncio.to_thread(manage.enable, entry.name, self._cwd, plugins=self._plugins), "enabled")

    def _tell(self, done: manage.SwitchedAgent, state: str) -> None:
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
        where = await self.ask(Pick(f"Eject {entry.name} to", PLACES))
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
