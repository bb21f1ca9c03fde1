"""Warnings and errors of runs, read from the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from retinue.core.events import Body, LimitReached, Retrying, RunEnded, ToolEnded, Warned
from retinue.log.activity import TOOL_KINDS, beginning, read_body
from retinue.log.backend import LogConnection
from retinue.log.database import NO_ROW_LIMIT, opened

TroubleLevel = Literal["warning", "error"]
TROUBLE_LEVELS: tuple[TroubleLevel, ...] = get_args(TroubleLevel)
TroubleSource = Literal["search", "fetch", "get_content", "convert", "lsp", "tool", "model", "limit", "run"]
TROUBLE_SOURCES: tuple[TroubleSource, ...] = get_args(TroubleSource)

_WARNING_ENDS = ("steered", "stopped")
"""Ends of runs that are warnings. Others but `completed` are errors."""
_ERROR_CODES = ("internal",)


class Trouble(Struct, frozen=True):
    """A warning or error. `number` orders the troubles of a project, so that a reader can continue after one."""

    number: int
    at: float
    level: TroubleLevel
    source: TroubleSource
    run_id: str
    agent: str
    code: str
    text: str


def troubles(
    folder: Path,
    *,
    levels: Collection[TroubleLevel] = TROUBLE_LEVELS,
    sources: Collection[TroubleSource] = TROUBLE_SOURCES,
    after: int = 0,
    since: float = 0.0,
    limit: int | None = 20,
) -> list[Trouble]:
    """Return the newest `limit` troubles of one project (None: all), oldest first. Raise StateError if the log cannot
    be read."""
    count = NO_ROW_LIMIT if limit is None else limit
    entries: list[Trouble] = []
    with opened(folder) as connection:
        # One query for each pair: the index has the events of a pair in order, so that only the newest are read.
        for level in levels:
            for source in sources:
                entries += _read(connection, level, source, after, since, count)
    entries.sort(key=lambda entry: entry.number, reverse=True)
    return entries[:count][::-1]


def _read(
    connection: LogConnection, level: TroubleLevel, source: TroubleSource, after: int, since: float, count: int
) -> Iterator[Trouble]:
    """Yield the newest troubles of one level and source."""
    query = """SELECT events.id, run_id, agent, at, body FROM events JOIN runs ON runs.id = run_id
        WHERE source=? AND level=? AND events.id > ? AND at >= ? ORDER BY events.id DESC LIMIT ?"""
    for number, run_id, agent, at, body in connection.execute(query, (source, level, after, since, count)):
        code, text = describe(read_body(body))
        yield Trouble(number, at, level, source, run_id, agent, code, text)


def label(body: Body) -> tuple[str | None, str | None]:
    """Return level and source under which `retinue logs` and `retinue activity` list an event; None for most events."""
    match body:
        case ToolEnded():
            source = TOOL_KINDS.get(body.name)
            if body.result.is_error:
                return "warning", source or "tool"
            return ("info", source) if source is not None else (None, None)
        case RunEnded(outcome):
            if outcome.ended == "completed":
                return None, None
            return ("warning" if outcome.ended in _WARNING_ENDS else "error"), "run"
        case Warned():
            return ("error" if body.code in _ERROR_CODES else "warning"), "run"
        case Retrying():
            return "warning", "model"
        case LimitReached():
            return "warning", "limit"
        case _:
            return None, None


LABELLED_EVENTS = frozenset({ToolEnded, RunEnded, Warned, Retrying, LimitReached})
"""The events that may have a label."""


def describe(body: Body | None) -> tuple[str, str]:
    """Return code and text of such an event."""
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
