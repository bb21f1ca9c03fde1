"""A project's log at a glance, the labels of its runs, and text found anywhere in it: for lists that many look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.log.migrations import NAME_OF_RUN
from retinue.log.tail import ids_at_work

if TYPE_CHECKING:
    from retinue.log.query import LogReader

_DESCRIPTION = "json_extract(body, '$.options.description')"
_AROUND = 80
"""Characters before and after what was searched for."""
_SEARCHED = ("run.created", "message.added", "assistant.ended", "tool.started", "tool.ended", "run.ended")


class LogOverview(Struct, frozen=True):
    """`cwd` is the folder of the newest main run; None in an empty log."""

    cwd: str | None
    runs: int
    live: int
    waiting: int
    updated_at: float | None


class RunLabel(Struct, frozen=True):
    """How people call a run, and what it works on in a few words."""

    name: str | None = None
    description: str = ""


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
        query = f"SELECT run_id, {NAME_OF_RUN}, {_DESCRIPTION} FROM events WHERE seq=1 AND run_id IN ({marks})"  # noqa: S608
        for run_id, name, description in reader.select(query, some):
            found[run_id] = RunLabel(name, description or "")
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
