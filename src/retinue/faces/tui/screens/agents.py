"""The /agents menu: which agents run, which types there are, a new one, settings and jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from retinue.agents.catalog import Catalog, FailedFile, LoadedAgent
from retinue.agents.precedence import shadows
from retinue.agents.remove import OWN, own_files
from retinue.faces.cli.agents import tools_text
from retinue.faces.text import optional
from retinue.faces.tui.board.board import counts
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.marks import STYLES, icon
from retinue.faces.tui.board.text import one_line
from retinue.faces.tui.screens.sheet import HEADING, ListSheet, Row, Rows, columns, near
from retinue.models.resolve import Resolver

# How the id of a row begins that is a file which could not be loaded.
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
    """Return the first page. `jobs` is None where nothing is scheduled from this process."""
    known = list(cards)
    rows: list[tuple[str, str]] = []
    if known:
        rows.append(("running", f"Running agents ({len(known)}) — {counted(known)}"))
    rows.append(("types", f"Agent types ({len(catalog.winners)})"))
    if jobs is not None:
        rows.append(("schedules", f"Scheduled jobs ({jobs})"))
    rows += [("create", "Create new agent"), ("settings", "Settings")]
    return [(key, columns([(words, 0, "")], room)) for key, words in rows]


def counted(cards: Sequence[RunCard]) -> str:
    """Return how many of them work, wait for a slot, and are done."""
    running, queued = counts(cards)
    return f"{running} running, {optional('{} queued, ', queued)}{len(cards) - running - queued} done"


def running_rows(cards: Iterable[RunCard], room: int) -> list[Row]:
    """Return the agents as rows: the live ones first, the newest of each first."""
    ordered = sorted(cards, key=lambda card: (not card.live, -(card.began or card.queued_at)))
    rows = []
    for card in ordered:
        sign, meaning = icon(card, 0, motion=False)
        doing = card.activity() if card.at_work else card.status
        cells = [(sign, 1, meaning), (card.name, 18, ""), (doing, 24, "dim"), (card.description, 0, "")]
        rows.append((card.id, columns(cells, room)))
    return rows


def mark(entry: LoadedAgent) -> str:
    """Return `•` for one of the project, `◦` of the person, `✕` switched off; nothing for others."""
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
    broken = [each for each in catalog.failed if each.problem.severity == "error"]
    if broken:
        rows.append((f"{HEADING}failed", Text(" ")))
        rows += [(FAILED + each.path, failed_row(each, room)) for each in broken]
    return rows


def failed_row(each: FailedFile, room: int) -> Text:
    return columns([("!", 1, "error"), (Path(each.path).name, 22, "error"), (each.reason, 0, "")], room)


def actions(entry: LoadedAgent, catalog: Catalog) -> list[tuple[str, str]]:
    """Return what can be done with an agent, as (action, words)."""
    own = entry.source in OWN
    if entry.source == "policy":
        found = ["eject"]
    elif not entry.enabled:
        found = ["enable"]
    elif own:
        found = ["edit", "disable"]
    else:
        found = ["eject", "disable"]
    if own and not entry.enabled:
        found.append("edit")
    elif own and own_files(catalog, entry):
        found.append("reset")
    if own:
        found.append("delete")
    return [(action, _WORDS[action]) for action in [*found, "show"]]


def model_labels(resolver: Resolver) -> Label:
    """Return a function that says `inherit`, the model that a file's name means here, or that there is none."""
    known: dict[str, str] = {}

    def label(entry: LoadedAgent) -> str:
        policy = entry.spec.model
        name = policy.name
        if name is None or name == "inherit":
            return "inherit"
        if name not in known:
            known[name] = f"{name} (unavailable)"
            for each in (name, *policy.fallbacks):
                found = resolver.find(each)
                if found:
                    known[name] = found.info.id
                    break
        return known[name]

    return label


def about(entry: LoadedAgent, catalog: Catalog, label: Label, cwd: Path) -> Text:
    """Return what there is to know about an agent before one changes it."""
    spec, parsed = entry.spec, entry.parsed
    state = "" if entry.enabled else " · switched off"
    text = Text()
    text.append(one_line(spec.description) or "(no description)")
    text.append(f"\n{entry.source}, {parsed.dialect}{state} · {one_line(near(entry.path, cwd))}", STYLES["dim"])
    text.append(f"\ntools {one_line(tools_text(parsed))} · model {label(entry)}", STYLES["dim"])
    if spec.readonly:
        text.append(" · read-only", STYLES["dim"])
    for each in shadows(catalog.entries, entry):
        text.append(f"\nreplaces {one_line(near(each.path, cwd))} ({each.source})", STYLES["dim"])
    for problem in entry.problems:
        text.append(f"\n{problem.severity}: {one_line(problem.message)}", STYLES["warning"])
    return text


def about_failed(each: FailedFile, cwd: Path) -> Text:
    text = Text()
    text.append(f"{one_line(near(each.path, cwd))}:{each.line or 1}", STYLES["error"])
    text.append(f"\n{one_line(each.reason)}")
    if each.problem.remedy:
        text.append(f"\n{one_line(each.problem.remedy)}", STYLES["dim"])
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
                from retinue.faces.tui.screens.agents_types import TypesScreen

                self.app.push_screen(TypesScreen())
            case "create":
                self.action_create()
            case "settings" | "schedules" as name:
                self.do(self.host.open_screen(name))
            case _:
                pass

    def action_create(self) -> None:
        from retinue.faces.tui.screens.wizard import create_on

        self.do(create_on(self))

    def draw(self) -> None:
        retinue = self.retinue
        jobs = None
        if retinue.supervisor.settings.scheduling_enabled and retinue.schedules.active:
            jobs = len(retinue.schedules.jobs())
        self.query_one(Rows).fill(menu_rows(self.host.board.agents(), retinue.agents, jobs, self.room))


class RunningScreen(ListSheet[None]):
    """Every agent of this session; one that is chosen is watched."""

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
        self.query_one(Rows).fill(running_rows(cards, self.room))
