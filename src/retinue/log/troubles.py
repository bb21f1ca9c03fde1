"""Warnings and errors of runs, from the log: what went wrong, where and when."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from retinue.core.events import Body, LimitReached, Retrying, RunEnded, ToolEnded, Warned
from retinue.log.activity import TOOL_KINDS, beginning, read_body
from retinue.log.backend import LogConnection
from retinue.log.database import NO_ROW_LIMIT, opened

Level = Literal["warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
Source = Literal["search", "fetch", "get_content", "convert", "lsp", "tool", "model", "limit", "run"]
SOURCES: tuple[Source, ...] = get_args(Source)

_MILD_ENDS = ("steered", "stopped")
_SEVERE = ("internal",)


class Trouble(Struct, frozen=True):
    """`number` orders the troubles of a project, so that a reader can go on after one."""

    number: int
    at: float
    level: Level
    source: Source
    run_id: str
    agent: str
    code: str
    text: str


def troubles(
    folder: Path,
    *,
    levels: Collection[Level] = LEVELS,
    sources: Collection[Source] = SOURCES,
    after: int = 0,
    since: float = 0.0,
    limit: int | None = 20,
) -> list[Trouble]:
    """Return the newest `limit` of one project, oldest first; None: all. Raise StateError if the log
    cannot be read."""
    most = NO_ROW_LIMIT if limit is None else limit
    entries: list[Trouble] = []
    with opened(folder) as connection:
        # One question for each pair: the index has the events of a pair in order, so that only the newest are read.
        for level in levels:
            for source in sources:
                entries += _read(connection, level, source, after, since, most)
    entries.sort(key=lambda entry: entry.number, reverse=True)
    return entries[:most][::-1]


def _read(
    connection: LogConnection, level: Level, source: Source, after: int, since: float, most: int
) -> Iterator[Trouble]:
    """Yield the newest of one level and source."""
    query = """SELECT events.id, run_id, agent, at, body FROM events JOIN runs ON runs.id = run_id
        WHERE source=? AND level=? AND events.id > ? AND at >= ? ORDER BY events.id DESC LIMIT ?"""
    for number, run_id, agent, at, body in connection.execute(query, (source, level, after, since, most)):
        code, text = describe(read_body(body))
        yield Trouble(number, at, level, source, run_id, agent, code, text)


def label(body: Body) -> tuple[str | None, str | None]:
    """Return level and source under which `retinue logs` and `retinue activity` find an event; None for most."""
    match body:
        case ToolEnded():
            source = TOOL_KINDS.get(body.name)
            if body.result.is_error:
                return "warning", source or "tool"
            return ("info", source) if source is not None else (None, None)
        case RunEnded(outcome):
            if outcome.ended == "completed":
                return None, None
            return ("warning" if outcome.ended in _MILD_ENDS else "error"), "run"
        case Warned():
            return ("error" if body.code in _SEVERE else "warning"), "run"
        case Retrying():
            return "warning", "model"
        case LimitReached():
            return "warning", "limit"
        case _:
            return None, None


LABELLED = frozenset({ToolEnded, RunEnded, Warned, Retrying, LimitReached})
"""The events of which `label` says anything."""


def describe(body: Body | None) -> tuple[str, str]:
    """Return the code and the text of such an event."""
    match body:
        case Warned(code, text):
            return code, text
        case Retrying():
            return body.failure.kind, body.failure.message
        case LimitReached(limit, _, detail):
            return limit, detail
        case ToolEnded():
            code = "denied" if body.effect.denied else body.effect.code or body.name
            return code, f"{body.name}: {beginning(body.result.text)}"
        case RunEnded(outcome):
            failure = outcome.failure
            text = " ".join(filter(None, (failure.message, failure.remedy))) if failure is not None else ""
            return outcome.ended, text or f"The run ended as {outcome.ended}."
        case _:
            return "", "an event that this version cannot read"
