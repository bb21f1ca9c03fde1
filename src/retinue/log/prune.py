"""Pruning removes the events of old runs and keeps their totals.

A pruned run keeps its row (outcome, turns, calls, tokens, cost), its task, its last answer, and the troubles and calls
that `retinue logs` and `retinue activity` list, without their outputs. Its last event, `run.pruned`, has the number of
removed events. A pruned run cannot be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import decode, encode
from retinue.core.events import Body, RunCreated, RunPruned, ToolEnded
from retinue.core.messages import Text
from retinue.errors import StateError
from retinue.log.activity import beginning
from retinue.log.backend import LogConnection
from retinue.log.database import opened, transaction
from retinue.log.migrations import RARE_TYPES
from retinue.log.query import LogReader

_RUNS_PER_TRANSACTION = 100
"""Other processes can write between two transactions."""
_IS_KEPT = "(seq=1 OR type IN ('run.ended', 'run.pruned') OR source IS NOT NULL)"
_MAX_EVENT_CHARACTERS = 2_000
"""Longer events are shortened."""
_KEPT_SPEC_KEYS = ("name", "display_name", "description", "background")


class PrunedEvents(Struct, frozen=True):
    """The number of pruned runs and removed events, and by how much the file became smaller. `busy`: the space could
    not be released, because another process uses the log or a server keeps it, and new runs use it."""

    runs: int
    events: int
    bytes: int = 0
    busy: bool = False


def prunable(reader: LogReader, run_ids: Sequence[str]) -> list[str]:
    """Return those of the runs that have not been pruned."""
    rows = reader.select(f"SELECT run_id FROM events WHERE type='run.pruned' AND {RARE_TYPES}")  # noqa: S608
    pruned = {row[0] for row in rows}
    return [run_id for run_id in run_ids if run_id not in pruned]


def prune_events(folder: Path, run_ids: Sequence[str], *, shrink: bool = True) -> PrunedEvents:
    """Prune runs that are over, and with `shrink` release the space. Raise StateError."""
    removed, busy = 0, False
    with opened(folder, writable=True) as connection:
        before = connection.size()
        for start in range(0, len(run_ids), _RUNS_PER_TRANSACTION):
            removed += _remove(connection, run_ids[start : start + _RUNS_PER_TRANSACTION])
        if shrink:
            busy = not connection.shrink()
        freed = max(before - connection.size(), 0)
    return PrunedEvents(len(run_ids), removed, freed, busy)


def _remove(connection: LogConnection, run_ids: Sequence[str]) -> int:
    marks = ", ".join("?" * len(run_ids))
    ids = tuple(run_ids)
    with transaction(connection):
        live = connection.execute(
            f"SELECT id FROM runs WHERE id IN ({marks}) AND state NOT IN ('ended', 'interrupted')",  # noqa: S608
            ids,
        ).fetchone()
        if live is not None:
            raise StateError(f"Run {live[0]} is at work again.", remedy="Try again when it has ended.")
        last = connection.execute(
            f"SELECT run_id, max(seq) FROM events WHERE run_id IN ({marks}) GROUP BY run_id",  # noqa: S608
            ids,
        ).fetchall()
        removed = f"FROM events WHERE run_id IN ({marks}) AND NOT {_IS_KEPT}"
        counts = dict(connection.execute(f"SELECT run_id, count(*) {removed} GROUP BY run_id", ids).fetchall())
        connection.execute(f"DELETE {removed}", ids)
        connection.execute(f"DELETE FROM partials WHERE run_id IN ({marks})", ids)  # noqa: S608
        _shorten(connection, marks, ids)
        now = time.time()
        rows: list[tuple[object, ...]] = []
        for run_id, seq in last:
            body = RunPruned(counts.get(run_id, 0))
            rows.append((run_id, seq + 1, now, body.type, encode(body)[1].decode()))
        connection.insert("events", ("run_id", "seq", "at", "type", "body"), rows)
    return sum(counts.values())


def _shorten(connection: LogConnection, marks: str, ids: tuple[str, ...]) -> None:
    """Shorten long events. Rows of `events` cannot be changed: they are replaced by rows with the same numbers."""
    columns = ("id", "run_id", "seq", "at", "type", "body", "level", "source")
    query = (
        f"SELECT {', '.join(columns)} FROM events WHERE run_id IN ({marks}) AND length(body) > {_MAX_EVENT_CHARACTERS}"  # noqa: S608
    )
    rows = []
    for number, run_id, seq, at, kind, body, *labels in connection.execute(query, ids).fetchall():
        short = _shorten_body(decode(body))
        if short is not None:
            rows.append((number, run_id, seq, at, kind, encode(short)[1].decode(), *labels))
    connection.executemany("DELETE FROM events WHERE id=?", [row[:1] for row in rows])
    connection.insert("events", columns, rows)


def _shorten_body(body: Body) -> Body | None:
    match body:
        case RunCreated():
            spec = {name: value for name, value in body.spec.items() if name in _KEPT_SPEC_KEYS}
            return replace(body, spec=spec, options=replace(body.options, system=None))
        case ToolEnded():
            return replace(body, result=replace(body.result, content=(Text(beginning(body.result.text)),)))
        case _:
            return None
