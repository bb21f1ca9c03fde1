"""The first screen: the version, the model, the permission mode, the folder, and the loaded files.

It appears at once with the facts that need no search, and is completed when the model and the files have been found.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from retinue.app.modes import mode_words
from retinue.app.projects import home
from retinue.app.rich_text import STYLES, one_line
from retinue.core import version

if TYPE_CHECKING:
    from retinue.app.models import ModelSelection
    from retinue.app.retinue import Project
    from retinue.frontends.tui.statusline import FactFinder

TIPS = (
    "@name speaks to one agent; ↓ in an empty prompt goes to the list of agents.",
    "Say something while it works: it is told before its next step.",
    "Ctrl+O opens all tool calls; Esc interrupts, and what was said is kept.",
    "Agents in the background go on when you interrupt or leave: retinue attach finds them.",
    "What an agent changed: retinue runs effects. Back again: retinue runs undo.",
)
_TIP_SECONDS = 3_600
LOOKING = "…"
NO_MODEL = "none yet: only searches work without a language model"


@dataclass(frozen=True, slots=True)
class WelcomeFacts:
    """The facts on the first screen. An empty `model` or `loaded` means that the search is not finished."""

    version: str
    folder: str
    mode: str
    branch: str = ""
    model: str = ""
    key: str = ""
    loaded: tuple[str, ...] = ()
    tip: str = ""


def welcome_rows(facts: WelcomeFacts) -> list[tuple[str, str]]:
    """Return the rows of the screen as pairs of a label and its value."""
    folder = facts.folder
    if facts.branch:
        folder += f" ⎇ {facts.branch}"
    model = facts.model or LOOKING
    if facts.key:
        model += f" · {facts.key}"
    return [
        ("model", model),
        ("mode", f"{facts.mode} · shift+tab for another"),
        ("folder", folder),
        ("loaded", " · ".join(facts.loaded) or LOOKING),
    ]


class Welcome(Static):
    """The first screen, shown until the conversation begins."""

    def __init__(self) -> None:
        super().__init__(classes="welcome")
        self.facts: WelcomeFacts | None = None

    def tell(self, facts: WelcomeFacts) -> None:
        """Show these facts. Unchanged facts are not drawn again."""
        if facts == self.facts:
            return
        self.facts = facts
        grid = Table.grid(padding=(0, 2))
        for word, text in welcome_rows(facts):
            grid.add_row(Text(word, STYLES["dim"]), Text(one_line(text)))
        table = Table.grid()
        table.add_row(Text.assemble(("Retinue", "bold"), f" {facts.version}"))
        table.add_row(grid)
        table.add_row(Text(f"Tip: {facts.tip}", STYLES["dim"]))
        self.update(table)


def welcome_facts(project: Project, finder: FactFinder, mode: str) -> WelcomeFacts:
    """Return the facts that are known now."""
    model, key = "", ""
    if finder.selection is not None or finder.looked:
        model, key = model_and_key(finder.selection)
    return WelcomeFacts(
        version=version.__version__,
        folder=short_folder(project.cwd, home(project.environment)),
        mode=mode_words(mode),
        branch=finder.branch,
        model=model,
        key=key,
        loaded=finder.loaded,
        tip=tip_for(project.clock.now()),
    )


def model_and_key(selection: ModelSelection | None) -> tuple[str, str]:
    """Return a description of the model, and the source of its key, but never the key."""
    if selection is None:
        return "not found: /model shows which there are", ""
    if selection.source == "offline":
        return NO_MODEL, "/model"
    provider = selection.provider
    if provider.key_source:
        return selection.info.full_name, f"key from {provider.key_source}"
    if provider.problem:
        return selection.info.full_name, provider.problem
    return selection.info.full_name, "no key needed"


def tip_for(now: float) -> str:
    """Return a tip, a different one every hour."""
    return TIPS[int(now // _TIP_SECONDS) % len(TIPS)]


def short_folder(folder: Path, home: Path) -> str:
    """Return `~/project` for a folder below the home folder, otherwise its path."""
    if folder == home:
        return "~"
    if home in folder.parents:
        return f"~/{folder.relative_to(home)}"
    return str(folder)
