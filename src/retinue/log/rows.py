"""The row of each run, which is written in the same transaction as its events."""

from __future__ import annotations

import contextlib
from operator import attrgetter
from typing import Any, TypeVar

from retinue.core.delegation import LIVE, State
from retinue.core.encode import decode
from retinue.core.events import Event
from retinue.core.run_state import ActiveRun, RunState
from retinue.core.usage import Usage

StateT = TypeVar("StateT", bound=RunState)

LABEL_COLUMNS = ("name", "display_name", "description", "color", "tags", "call_id")
IDENTITY_COLUMNS = ("id", "parent_id", "root_id", "depth", "agent", "task", "cwd", "created_at", *LABEL_COLUMNS)
_USAGE_COLUMNS = ("input", "output", "cache_read", "cache_write", "cost_usd")
COUNT_COLUMNS = ("model", "turns", "tool_uses", "compactions", *_USAGE_COLUMNS, "updated_at")
"""The columns that most events change, which have no index."""
CHANGING_COLUMNS = (
    *("owner", "state", "ended", "error", "transcript", "started_at", "ended_at", "background"),
    *COUNT_COLUMNS,
)
_DIRECT_COLUMNS = [
    name
    for name in (*IDENTITY_COLUMNS, *CHANGING_COLUMNS)
    if name not in ("tags", "owner", "state", "background", *_USAGE_COLUMNS)
]
SELECT_RUN = f"SELECT {', '.join((*IDENTITY_COLUMNS, *CHANGING_COLUMNS))} FROM runs"  # noqa: S608


def labels(run: RunState) -> tuple[object, ...]:
    return (run.name, run.display_name, run.description, run.color, "\n".join(run.tags), run.call_id)


FIND_CREATED = "SELECT run_id, body FROM events WHERE type = 'run.created'"
SET_LABELS = """UPDATE runs SET name=?, display_name=?, description=?, color=?, tags=?, call_id=?, background=?
    WHERE id=?"""
FIND_MOVED = "SELECT run_id FROM events WHERE type = 'run.moved'"


def read_labels(run_id: str, body: str) -> tuple[object, ...]:
    """Return the labels of a run, and whether it began in the background, from its first event, for logs without
    columns for them. An unreadable event has no labels."""
    run = ActiveRun(run_id)
    with contextlib.suppress(ValueError):
        run.apply(Event(run_id, None, run_id, 1, 0.0, decode(body)))
    return (*labels(run), run.background)


_identity = attrgetter("id", "parent_id", "root_id", "depth", "agent", "task", "cwd", "created_at")
_changing = attrgetter("state", "ended", "error", "transcript", "started_at", "ended_at", "background")
counts = attrgetter(
    *("model", "turns", "tool_uses", "compactions"), *(f"usage.{name}" for name in _USAGE_COLUMNS), "updated_at"
)
"""Returns the values of `COUNT_COLUMNS`."""


def identity(run: RunState) -> tuple[object, ...]:
    return (*_identity(run), *labels(run))


def changing(run: RunState, owner: str) -> tuple[object, ...]:
    """Return the values of `CHANGING_COLUMNS`. Only a live run has an owner."""
    return (owner if run.state in LIVE else None, *_changing(run), *counts(run))


def read_run(kind: type[StateT], row: Any, state: State, pid: int | None = None) -> StateT:
    """Return the run of a row: as a RunState to show it, or as an ActiveRun to continue it."""
    values = {name: row[name] for name in _DIRECT_COLUMNS}
    return kind(
        **values,
        tags=tuple(row["tags"].split("\n")) if row["tags"] else (),
        background=bool(row["background"]),
        state=state,
        pid=pid,
        usage=Usage(*(row[name] for name in _USAGE_COLUMNS)),
    )
