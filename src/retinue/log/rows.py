"""The row that the log keeps of each run beside its events, written in the same transaction."""

from __future__ import annotations

import contextlib
from operator import attrgetter
from typing import Any, TypeVar

from retinue.core.delegation import LIVE, State
from retinue.core.encode import decode
from retinue.core.events import Event
from retinue.core.run_state import ActiveRun, RunState
from retinue.core.usage import Usage

R = TypeVar("R", bound=RunState)

LABELS = ("name", "display_name", "description", "color", "tags", "call_id")
IDENTITY = ("id", "parent_id", "root_id", "depth", "agent", "task", "cwd", "created_at", *LABELS)
_USAGE = ("input", "output", "cache_read", "cache_write", "cost_usd")
COUNTS = ("model", "turns", "tool_uses", "compactions", *_USAGE, "updated_at")
"""For the many events that do not move a run to another state: it leaves the indexes alone."""
CHANGING = ("owner", "state", "ended", "error", "transcript", "started_at", "ended_at", "background", *COUNTS)
_DIRECT_COLUMNS = [
    name for name in (*IDENTITY, *CHANGING) if name not in ("tags", "owner", "state", "background", *_USAGE)
]
SELECT_RUN = f"SELECT {', '.join((*IDENTITY, *CHANGING))} FROM runs"  # noqa: S608


def labels(run: RunState) -> tuple[object, ...]:
    return (run.name, run.display_name, run.description, run.color, "\n".join(run.tags), run.call_id)


FIND_CREATED = "SELECT run_id, body FROM events WHERE type = 'run.created'"
SET_LABELS = """UPDATE runs SET name=?, display_name=?, description=?, color=?, tags=?, call_id=?, background=?
    WHERE id=?"""
FIND_MOVED = "SELECT run_id FROM events WHERE type = 'run.moved'"


def read_labels(run_id: str, body: str) -> tuple[object, ...]:
    """Return the labels of a run and whether it began in the background, from its first event: older logs have no
    columns for them. A first event that cannot be read gives none."""
    run = ActiveRun(run_id)
    with contextlib.suppress(ValueError):
        run.apply(Event(run_id, None, run_id, 1, 0.0, decode(body)))
    return (*labels(run), run.background)


_identity = attrgetter("id", "parent_id", "root_id", "depth", "agent", "task", "cwd", "created_at")
_changing = attrgetter("state", "ended", "error", "transcript", "started_at", "ended_at", "background")
counts = attrgetter(
    *("model", "turns", "tool_uses", "compactions"), *(f"usage.{name}" for name in _USAGE), "updated_at"
)
"""Returns the values of the columns `COUNTS`."""


def identity(run: RunState) -> tuple[object, ...]:
    return (*_identity(run), *labels(run))


def changing(run: RunState, owner: str) -> tuple[object, ...]:
    """Return the values of a row's changing columns. Only a live run has an owner."""
    return (owner if run.state in LIVE else None, *_changing(run), *counts(run))


def read_run(kind: type[R], row: Any, state: State, pid: int | None = None) -> R:
    """Return the run of a row, as a RunState to show it or as an ActiveRun to continue it."""
    values = {name: row[name] for name in _DIRECT_COLUMNS}
    return kind(
        **values,
        tags=tuple(row["tags"].split("\n")) if row["tags"] else (),
        background=bool(row["background"]),
        state=state,
        pid=pid,
        usage=Usage(*(row[name] for name in _USAGE)),
    )
