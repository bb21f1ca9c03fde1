"""Summaries of a project's log: its size, the activities of its live runs, its costs, and a text search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from retinue.core.encode import decode
from retinue.core.events import RunStarted
from retinue.core.story import Story
from retinue.core.usage import Usage
from retinue.log.follow import ids_at_work
from retinue.log.replay import describe_call

if TYPE_CHECKING:
    from retinue.core.run_state import RunState
    from retinue.log.query import LogReader

_EXCERPT_CHARACTERS = 80
"""The length of the excerpt on each side of a match."""
_MAX_ACTIVITY_EVENTS = 12
"""The number of events of a live run from which its activity is described."""
_SEARCHED_TYPES = ("run.created", "message.added", "assistant.ended", "tool.started", "tool.ended", "run.ended")


class LogOverview(Struct, frozen=True):
    """`cwd` is the folder of the newest main run; None in an empty log."""

    cwd: str | None
    runs: int
    live: int
    waiting: int
    updated_at: float | None


class SearchHit(Struct, frozen=True):
    """An event that contains the searched text. `excerpt` is the text around the match, in the form of JSON."""

    run_id: str
    agent: str
    seq: int
    at: float
    type: str
    excerpt: str


def overview(reader: LogReader) -> LogOverview:
    """Return the number of runs, and how many are at work or wait for a person."""
    query = """SELECT (SELECT cwd FROM runs WHERE parent_id IS NULL ORDER BY created_at DESC LIMIT 1),
        (SELECT count(*) FROM runs), (SELECT count(*) FROM inbox WHERE state='waiting'),
        (SELECT at FROM events ORDER BY id DESC LIMIT 1)"""
    cwd, runs, waiting, last = reader.select(query)[0]
    return LogOverview(cwd, runs, len(ids_at_work(reader)), waiting, last)


def describe_activity(reader: LogReader, runs: Sequence[RunState]) -> None:
    """Describe in a few words what each live run is doing, in its field `doing`."""
    for run in runs:
        if run.live:
            run.doing = _activity(reader, run.id)


def _activity(reader: LogReader, run_id: str) -> str:
    query = "SELECT body FROM events WHERE run_id=? ORDER BY seq DESC LIMIT ?"
    story = Story()
    text = ""
    for (data,) in reversed(reader.select(query, (run_id, _MAX_ACTIVITY_EVENTS))):
        for step in story.take(decode(data)):
            entry = step.entry
            # A question without a call is that of the run itself, such as a quote.
            text = entry.text if entry.topic in ("asked", "retry") else ""
    for entry in reversed(story.calls):
        if entry.asks:
            return entry.asks
        if entry.call is not None and entry.state == "running":
            return describe_call(entry.call)
    return text


def run_tools(reader: LogReader, run_id: str) -> list[str]:
    """Return the names of a run's tools; none before it has started."""
    query = "SELECT body FROM events WHERE run_id=? AND type='run.started' ORDER BY seq DESC LIMIT 1"
    for (data,) in reader.select(query, (run_id,)):
        body = decode(data)
        if isinstance(body, RunStarted):
            return list(body.tools)
    return []


def tree_usage(reader: LogReader, run_id: str) -> Usage:
    """Return the usage of a run and all runs below it. The cost is None if the price of any of them is unknown."""
    query = """WITH RECURSIVE tree (id) AS (
            SELECT id FROM runs WHERE id=? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
        )
        SELECT sum(input), sum(output), sum(cache_read), sum(cache_write),
        CASE WHEN count(cost_usd) = count(*) THEN sum(cost_usd) END
        FROM runs WHERE id IN (SELECT id FROM tree)"""
    new, output, read, written, cost = reader.select(query, (run_id,))[0]
    return Usage(new or 0, output or 0, read or 0, written or 0, cost)


def tree_costs(reader: LogReader, run_ids: Sequence[str]) -> dict[str, float]:
    """Return the known costs of these main runs, each with all runs below it, by id."""
    marks = ", ".join("?" * len(run_ids))
    query = f"""SELECT root_id, sum(cost_usd) FROM runs
        WHERE root_id IN ({marks}) AND cost_usd IS NOT NULL GROUP BY root_id"""  # noqa: S608
    return dict(reader.select(query, tuple(run_ids)))


def tree_budgets(reader: LogReader) -> dict[str, dict[str, float]]:
    """Return the budgets of trees, by the id of their first run."""
    query = """SELECT run_id, json_extract(body, '$.options.budget') FROM events JOIN runs ON runs.id=run_id
        WHERE seq=1 AND parent_id IS NULL AND json_extract(body, '$.options.budget') IS NOT NULL"""
    return {run_id: msgspec.json.decode(text, type=dict[str, float]) for run_id, text in reader.select(query)}


def search(reader: LogReader, words: str, *, limit: int = 50) -> list[SearchHit]:
    """Return the newest events that contain `words`: tasks, messages, answers, calls and results. The case of ASCII
    letters is ignored."""
    pattern = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    marks = ", ".join("?" * len(_SEARCHED_TYPES))
    query = f"""SELECT run_id, agent, seq, at, type, instr(lower(body), lower(?)), body FROM events
        JOIN runs ON runs.id=run_id WHERE type IN ({marks}) AND body LIKE ? ESCAPE '\\'
        ORDER BY events.id DESC LIMIT ?"""  # noqa: S608
    rows = reader.select(query, (words, *_SEARCHED_TYPES, f"%{pattern}%", limit))
    hits = []
    for run_id, agent, seq, at, kind, position, body in rows:
        start, end = position - 1 - _EXCERPT_CHARACTERS, position - 1 + len(words) + _EXCERPT_CHARACTERS
        hits.append(SearchHit(run_id, agent, seq, at, kind, body[max(start, 0) : end]))
    return hits
