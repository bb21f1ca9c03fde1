"""Reports from the log: costs, activity and errors of runs, of one project or of all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from retinue.app.text import optional
from retinue.core.format import format_cost
from retinue.errors import StateError
from retinue.log import activity
from retinue.log.activity import ACTIVITY_KINDS as ACTIVITY_KINDS
from retinue.log.activity import GROUPINGS as GROUPINGS
from retinue.log.activity import ActivityEntry as ActivityEntry
from retinue.log.activity import ActivityKind, Spending
from retinue.log.activity import Grouping as Grouping
from retinue.log.activity import Totals as Totals
from retinue.log.database import log_folders
from retinue.log.overview import tree_budgets
from retinue.log.query import LogReader
from retinue.log.troubles import TROUBLE_LEVELS as TROUBLE_LEVELS
from retinue.log.troubles import TROUBLE_SOURCES as TROUBLE_SOURCES
from retinue.log.troubles import Trouble as Trouble
from retinue.log.troubles import TroubleLevel, TroubleSource, troubles
from retinue.settings.places import retinue_state

Line = TypeVar("Line")


class CostRow(Spending, frozen=True, kw_only=True):
    """The usage of the runs with one `key`: an agent, a run, a tree, a day, or a model."""

    tokens: int

    @property
    def money(self) -> str:
        """`~$1.24`, `~$1.24 + 2 unpriced` or `unpriced`; `$0` only for what is known to be free."""
        if self.cost_usd is None and self.unpriced_runs:
            return "unpriced"
        return (format_cost(self.cost_usd) or "$0") + optional(" + {} unpriced", self.unpriced_runs)


class CostReport(Struct, frozen=True, kw_only=True):
    """The usage of runs since a time. Runs without a known price are counted separately, never as free. `budgets` are
    those of trees, by the id of their first run. `problems` are logs that cannot be read."""

    by: str
    since: float | None
    rows: list[CostRow]
    total: CostRow
    budgets: Mapping[str, Mapping[str, float]]
    problems: list[str]


class ActivityReport(Struct, frozen=True, kw_only=True):
    """Calls to the web, to documents and to language servers: totals by provider, and the newest calls."""

    since: float | None
    rows: list[Totals]
    total: Totals
    recent: list[ActivityEntry]
    problems: list[str]


class TroubleList(Struct, frozen=True):
    """Warnings and errors of runs, newest last."""

    entries: list[Trouble]


def _gather(folder: Path | None, read: Callable[[Path], list[Line]]) -> tuple[list[Line], list[str]]:
    """Return the results of `read` for one state folder, or for None of all of them, and the logs that cannot be
    read."""
    if folder is not None:
        return read(folder), []
    lines: list[Line] = []
    problems: list[str] = []
    for state in log_folders(retinue_state()):
        try:
            lines += read(state)
        except StateError as error:
            problems.append(f"{error} It is not counted.")
    return lines, problems


def read_cost(folder: Path | None, by: Grouping, since: float | None = None) -> CostReport:
    """Return what runs that were active since then have used: of the project with that state folder, or of all."""
    lines, problems = _gather(folder, lambda state: activity.spending(state, by, since or 0.0))
    if folder is None:
        lines = activity.merged(lines, by)
    budgets: Mapping[str, Mapping[str, float]] = {}
    if by == "tree" and folder is not None:
        with LogReader.open(folder) as reader:
            budgets = tree_budgets(reader)
    return CostReport(
        by=by,
        since=since,
        rows=[_row(line, by) for line in lines],
        total=_row(activity.total(lines), None),
        budgets=budgets,
        problems=problems,
    )


def _row(line: Spending, by: Grouping | None) -> CostRow:
    values = asdict(line)
    if by == "agent":
        values["agent"] = line.key
    elif by not in ("run", "tree"):
        values["agent"] = values["task"] = ""
    return CostRow(**values, tokens=line.tokens)


def read_activity(
    folder: Path | None, kinds: Collection[ActivityKind] = ACTIVITY_KINDS, since: float | None = None, recent: int = 0
) -> ActivityReport:
    """Return the calls of agents to the web, to documents and to language servers, with the newest `recent` ones."""
    entries, problems = _gather(folder, lambda state: activity.activity(state, kinds=kinds, since=since or 0.0))
    return ActivityReport(
        since=since,
        rows=activity.totals(entries),
        total=activity.everything(entries),
        recent=sorted(entries, key=lambda entry: entry.at, reverse=True)[:recent],
        problems=problems,
    )


def read_troubles(
    folder: Path,
    *,
    levels: Collection[TroubleLevel] = TROUBLE_LEVELS,
    sources: Collection[TroubleSource] = TROUBLE_SOURCES,
    after: int = 0,
    since: float = 0.0,
    limit: int | None = 20,
) -> TroubleList:
    """Return the newest warnings and errors of a project with numbers above `after`."""
    return TroubleList(troubles(folder, levels=levels, sources=sources, after=after, since=since, limit=limit))
