"""A project's log at a glance: how much there is, what runs are called and are doing, and where words stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from retinue.core.delegation import LIVE
from retinue.core.events import (
    MOVED,
    AssistantEnded,
    InboxOpened,
    Retrying,
    RunStarted,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from retinue.core.usage import Usage
from retinue.log.encode import decode
from retinue.log.migrations import NAME_OF_RUN, RARE_TYPES
from retinue.log.open_calls import describe_call
from retinue.log.tail import ids_at_work

if TYPE_CHECKING:
    from retinue.log.query import LogReader
    from retinue.log.rows import RunRow

_DESCRIPTION = "json_extract(body, '$.options.description')"
_CALL = "json_extract(body, '$.options.call_id')"
_BACKGROUND = "json_extract(body, '$.options.background')"
_AROUND = 80
"""Characters before and after what was searched for."""
_LATEST = 12
"""Events of a live run that are looked at to say what it is doing."""
_SEARCHED = ("run.created", "message.added", "assistant.ended", "tool.started", "tool.ended", "run.ended")


class LogOverview(Struct, frozen=True):
    """`cwd` is the folder of the newest main run; None in an empty log."""

    cwd: str | None
    runs: int
    live: int
    waiting: int
    updated_at: float | None


class RunLabel(Struct, frozen=True):
    """How people call a run, what it works on in a few words, the call of its parent that started it, and whether its
    parent goes on meanwhile."""

    name: str | None = None
    description: str = ""
    call_id: str | None = None
    background: bool = False


class SearchHit(Struct, frozen=True):
    """One event that holds the words; `excerpt` is what stands around them, as JSON has it."""

    run_id: str
    agent: str
    seq: int
    at: float
    type: str
    excerpt: str


def overview(reader: LogReader) -> LogOverview:
    """Return how much there is, and how much of it is at work or waits for a person."""
    newest = reader.select(
        "SELECT cwd FROM runs WHERE parent_id IS NULL ORDER BY created_at DESC LIMIT 1",
    )
    count = reader.select("SELECT count(*) FROM runs")[0][0]
    last = reader.select("SELECT at FROM events ORDER BY id DESC LIMIT 1")
    live = len(ids_at_work(reader))
    waiting = int(reader.select("SELECT count(*) FROM inbox WHERE state='waiting'")[0][0])
    return LogOverview(newest[0][0] if newest else None, int(count), live, waiting, last[0][0] if last else None)


def run_labels(reader: LogReader, ids: Sequence[str]) -> dict[str, RunLabel]:
    """Return what each of these runs is called."""
    found = {}
    for start in range(0, len(ids), 500):
        some = tuple(ids[start : start + 500])
        marks = ", ".join("?" * len(some))
        moved = _moved_ids(reader, some, marks)
        what = f"run_id, {NAME_OF_RUN}, {_DESCRIPTION}, {_CALL}, {_BACKGROUND}"
        query = f"SELECT {what} FROM events WHERE seq=1 AND run_id IN ({marks})"  # noqa: S608
        for run_id, name, description, call_id, background in reader.select(query, some):
            # A truth is a number in one kind of database and a word in the other.
            aside = run_id in moved or background in (1, "true")
            found[run_id] = RunLabel(name, description or "", call_id, aside)
    return found


def _moved_ids(reader: LogReader, ids: tuple[str, ...], marks: str) -> set[str]:
    """Return those of these runs that were moved to the background. Only runs that a process has are looked at: of the
    others it does not matter any more, and each may hold many warnings."""
    owned = f"SELECT id FROM runs WHERE owner IS NOT NULL AND id IN ({marks})"  # noqa: S608
    query = f"SELECT run_id, body FROM events WHERE type='run.warned' AND {RARE_TYPES} AND run_id IN ({owned})"  # noqa: S608
    return {run_id for run_id, body in reader.select(query, ids) if f'"{MOVED}"' in body}


def describe_activity(reader: LogReader, rows: Sequence[RunRow]) -> dict[str, str]:
    """Return what each live run of these is doing, in a few words, by its id; nothing of those that are over."""
    found = {}
    for row in rows:
        if row.state in LIVE:
            found[row.id] = _activity(reader, row.id)
    return found


def _activity(reader: LogReader, run_id: str) -> str:
    query = "SELECT body FROM events WHERE run_id=? ORDER BY seq DESC LIMIT ?"
    ended: set[str] = set()
    for (data,) in reader.select(query, (run_id, _LATEST)):
        match decode(data):
            case InboxOpened(title=title):
                return title
            case Retrying(failure=failure):
                return failure.message
            case ToolEnded(call_id=call_id):
                ended.add(call_id)
            case ToolStarted(call) if call.id not in ended:
                return describe_call(call)
            case TurnStarted() | AssistantEnded():
                return ""
            case _:
                pass
    return ""


def run_tools(reader: LogReader, run_id: str) -> list[str]:
    """Return the names of the tools that a run has; none before it has started."""
    query = "SELECT body FROM events WHERE run_id=? AND type='run.started' ORDER BY seq DESC LIMIT 1"
    for (data,) in reader.select(query, (run_id,)):
        body = decode(data)
        if isinstance(body, RunStarted):
            return list(body.tools)
    return []


def tree_usage(reader: LogReader, run_id: str) -> Usage:
    """Return what a run and all below it have used. The cost is None when the price of any of them is not known."""
    query = """WITH RECURSIVE tree (id) AS (
            SELECT id FROM runs WHERE id=? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
        )
        SELECT sum(input), sum(output), sum(cache_read), sum(cache_write),
        CASE WHEN count(cost_usd) = count(*) THEN sum(cost_usd) END
        FROM runs WHERE id IN (SELECT id FROM tree)"""
    new, output, read, written, cost = reader.select(query, (run_id,))[0]
    return Usage(new or 0, output or 0, read or 0, written or 0, cost)


def tree_costs(reader: LogReader, run_ids: Sequence[str]) -> dict[str, float]:
    """Return what these main runs and all below them have cost, of those whose price is known."""
    marks = ", ".join("?" * len(run_ids))
    query = f"""SELECT root_id, sum(cost_usd) FROM runs
        WHERE root_id IN ({marks}) AND cost_usd IS NOT NULL GROUP BY root_id"""  # noqa: S608
    return dict(reader.select(query, tuple(run_ids)))


def tree_budgets(reader: LogReader) -> dict[str, dict[str, float]]:
    """Return the budgets that were given to whole trees, by the id of their first run."""
    query = """SELECT run_id, json_extract(body, '$.options.budget') FROM events JOIN runs ON runs.id=run_id
        WHERE seq=1 AND parent_id IS NULL AND json_extract(body, '$.options.budget') IS NOT NULL"""
    found = {}
    for run_id, budget in reader.select(query):
        found[run_id] = msgspec.json.decode(budget, type=dict[str, float])
    return found


def search(reader: LogReader, words: str, *, limit: int = 50) -> list[SearchHit]:
    """Return the newest events in which `words` stand: tasks, messages, answers, calls and results. Upper and lower
    case are the same for ASCII letters."""
    pattern = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    marks = ", ".join("?" * len(_SEARCHED))
    query = f"""SELECT run_id, agent, seq, at, type, instr(lower(body), lower(?)), body FROM events
        JOIN runs ON runs.id=run_id WHERE type IN ({marks}) AND body LIKE ? ESCAPE '\\'
        ORDER BY events.id DESC LIMIT ?"""  # noqa: S608
    rows = reader.select(query, (words, *_SEARCHED, f"%{pattern}%", limit))
    hits = []
    for run_id, agent, seq, at, kind, place, body in rows:
        start = max(place - 1 - _AROUND, 0)
        hits.append(SearchHit(run_id, agent, seq, at, kind, body[start : place - 1 + len(words) + _AROUND]))
    return hits
