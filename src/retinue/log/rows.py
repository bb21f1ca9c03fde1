"""The row that the log keeps of each run beside its events, written in the same transaction."""

from __future__ import annotations

import contextlib
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


def identity(run: RunState) -> tuple[object, ...]:
    place = (run.id, run.parent_id, run.root_id, run.depth)
    return (*place, run.agent, run.task, run.cwd, run.created_at, *labels(run))


def changing(run: RunState, owner: str) -> tuple[object, ...]:
    """Return the values of a row's changing columns. Only a live run has an owner."""
    return (
        owner if run.state in LIVE else None,
        run.state,
        run.ended,
        run.error,
        run.transcript,
        run.started_at,
        run.ended_at,
        run.background,
        *counts(run),
    )


def counts(run: RunState) -> tuple[object, ...]:
    usage = run.usage
    return (
        run.model,
        run.turns,
        run.tool_uses,
        run.compactions,
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.cost_usd,
        run.updated_at,
    )


def read_run(kind: type[R], row: Any, state: State, pid: int | None = None) -> R:
    """Return the run of a row, as a RunState to show it or as an ActiveRun to continue it."""
    return kind(
        id=row["id"],
        parent_id=row["parent_id"],
        root_id=row["root_id"],
        depth=row["depth"],
        agent=row["agent"],
        name=row["name"],
        display_name=row["display_name"],
        description=row["description"],
        color=row["color"],
        tags=tuple(row["tags"].split("\n")) if row["tags"] else (),
        call_id=row["call_id"],
        background=bool(row["background"]),
        task=row["task"],
        cwd=row["cwd"],
        model=row["model"],
        state=state,
        ended=row["ended"],
        error=row["error"],
        pid=pid,
        transcript=row["transcript"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        updated_at=row["updated_at"],
        turns=row["turns"],
        tool_uses=row["tool_uses"],
        compactions=row["compactions"],
        usage=Usage(row["input"], row["output"], row["cache_read"], row["cache_write"], row["cost_usd"]),
    )
