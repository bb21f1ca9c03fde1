"""The /agents menu: which agents run, which types there are, a new one, settings and jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Static

from retinue.agents.catalog import Catalog, FailedFile, LoadedAgent
from retinue.agents.precedence import shadows
from retinue.agents.remove import OWN, own_files
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.marks import STYLES, icon
from retinue.faces.tui.board.text import one_line
from retinue.faces.tui.screens.sheet import HEADING, Row, Rows, Sheet, columns, near
from retinue.models.resolve import Resolver

FAILED = "failed: "
"""How the id of a row begins that is a file which could not be loaded."""
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
    """The first page. `jobs` is None where nothing is scheduled from this process."""
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
    """How many of them work, wait for a slot, and are done."""
    live = [card for card in cards if card.live]
    queued = sum(card.status == "queued" for card in live)
    waiting = f"{queued} queued, " if queued else ""
    return f"{len(live) - queued} running, {waiting}{len(cards) - len(live)} done"


def running_rows(cards: Iterable[RunCard], room: int) -> list[Row]:
    """The live ones first, the newest of each first."""
    ordered = sorted(cards, key=lambda card: (not card.live, -(card.began or card.queued_at)))
    rows = []
    for card in ordered:
        sign, meaning = icon(card, 0, motion=False)
        doing = card.activity() if card.at_work else card.status
        cells = [(sign, 1, meaning), (card.name, 18, ""), (doing, 24, "dim"), (card.description, 0, "")]
        rows.append((card.id, columns(cells, room)))
    return rows


def mark(entry: LoadedAgent) -> str:
    """`•` of the project, `◦` of the person, `✕` switched off; nothing for others."""
    return "✕" if not entry.enabled else _MARKS.get(entry.source, " ")


def type_rows(catalog: Catalog, label: Label, room: int) -> list[Row]:
    """Every agent by name, then the files that are none."""
    winners = sorted(catalog.winners, key=lambda entry: entry.name.casefold())
    wide = min(max((len(entry.name) for entry in winners), default=0), 22)
    rows: list[Row] = []
    for entry in winners:
        meaning = "dim" if not entry.enabled else ""
        cells = [
            (mark(entry), 1, "accent" if entry.enabled else "dim"),
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
    """What can be done with an agent, as (action, words)."""
    own = entry.source in OWN
    found: list[str] = []
    if not entry.enabled:
        found += ["enable", "edit", "delete"] if own else ["enable"]
    elif own:
        found += ["edit", "disable"]
        found += ["reset"] if own_files(catalog, entry) else []
        found += ["delete"]
    else:
        found += ["eject", "disable"]
    if entry.source == "policy":
        found = ["eject"]
    return [(action, _WORDS[action]) for action in [*found, "show"]]


def model_labels(resolver: Resolver) -> Label:
    """`inherit`, the model that a file's name means here, or a note that there is none."""
    known: dict[str, str] = {}

    def label(entry: LoadedAgent) -> str:
        policy = entry.spec.model
        name = policy.name
        if name is None or name == "inherit":
            return "inherit"
        if name not in known:
            found = next((found for each in (name, *policy.fallbacks) if (found := resolver.find(each))), None)
            known[name] = found.info.id if found is not None else f"{name} (unavailable)"
        return known[name]

    return label


def about(entry: LoadedAgent, catalog: Catalog, label: Label, cwd: Path) -> Text:
    """What there is to know before one changes it."""
    spec, parsed = entry.spec, entry.parsed
    tools = "all" if parsed.tools is None else ", ".join(parsed.tools) or "none"
    state = "" if entry.enabled else " · switched off"
    text = Text()
    text.append(one_line(spec.description) or "(no description)")
    text.append(f"\n{entry.source}, {parsed.dialect}{state} · {one_line(near(entry.path, cwd))}", STYLES["dim"])
    text.append(f"\ntools {one_line(tools)} · model {label(entry)}", STYLES["dim"])
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
        retinue = self.host.retinue
        scheduling = retinue.supervisor.settings.scheduling_enabled and retinue.schedules.active
        jobs = len(retinue.schedules.jobs()) if scheduling else None
        self.query_one(Rows).fill(menu_rows(self.host.board.agents(), retinue.agents, jobs, self.room))


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
