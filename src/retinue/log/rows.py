"""A run as one row: the sum of its events, kept beside them in the same transaction."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from retinue.core.delegation import LIVE, State
from retinue.core.events import (
    AssistantEnded,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    RunCreated,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolEnded,
    TurnEnded,
    TurnStarted,
)
from retinue.core.outcome import Ended
from retinue.core.usage import Usage

TASK_PREVIEW = 500
"""Characters of the task kept in the row; the whole task is in the run's first event."""


class RunPlace(Struct, frozen=True):
    """Where a run stands in its tree. A root is its own root."""

    run_id: str
    parent_id: str | None = None
    root_id: str = ""

    def __post_init__(self) -> None:
        if not self.root_id:
            force_setattr(self, "root_id", self.run_id)


class RunRow(Struct, frozen=True, kw_only=True):
    """What `retinue runs list` shows of a run. `state` is as seen now: a run whose process is
    gone reads as interrupted whether or not anyone has marked it. `pid` is its owner's."""

    id: str
    parent_id: str | None
    root_id: str
    depth: int
    agent: str
    task: str
    cwd: str
    model: str
    state: State
    ended: Ended | None
    error: str | None
    """The kind of failure (`retinue.core.outcome.FailureKind`) of the last ending."""
    transcript: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    updated_at: float
    turns: int
    tool_uses: int
    compactions: int
    usage: Usage
    pid: int | None = None

    @property
    def place(self) -> RunPlace:
        return RunPlace(self.id, self.parent_id, self.root_id)


class RunTally(Struct):
    """The part of a row that changes while a run goes on, as its writer holds it."""

    state: State = "queued"
    ended: Ended | None = None
    error: str | None = None
    model: str = ""
    transcript: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = field(default_factory=Usage)
    updated_at: float = 0.0
    turn_seq: int = 0
    """Where the current turn began: text of the turn is saved behind this number."""
    saved_text: bool = False
    asking: int = 0
    """How much of it waits for a person."""
    moved: bool = False
    """Whether more than the counts has changed since the row was written."""

    def take(self, event: Event) -> bool:
        """Count one event in, of those in `COUNTED`; return whether the row has changed."""
        body = event.body
        match body:
            case TurnStarted():
                self.turn_seq = event.seq
                return False
            case ToolEnded():
                self.tool_uses += 1
            case TurnEnded():
                self.turns += 1
                self.usage = larger(self.usage, body.total, body.usage)
            case AssistantEnded():
                known, self.model = self.model, body.message.model or self.model
                if self.model == known:
                    return False
            case Compacted():
                self.compactions += 1
            case RunCreated() | RunStarted() | RunResumed() | RunEnded():
                self.moved = True
                self._move(body, event)
            case InboxOpened():
                self.moved = True
                self.asking += 1
                self.state = "waiting"
            case InboxClosed():
                self.moved = True
                # A run that was taken up again may see the end of a question whose beginning it did not count.
                self.asking = max(self.asking - 1, 0)
                self.state = "waiting" if self.asking else "running"
            case _:
                return False
        self.updated_at = event.at
        return True

    def _move(self, body: RunCreated | RunStarted | RunResumed | RunEnded, event: Event) -> None:
        match body:
            case RunCreated():
                self.state, self.model = "queued", body.model
            case RunStarted():
                self.state, self.model, self.transcript = "running", body.model, body.transcript
                self.started_at = self.started_at or event.at
            case RunResumed():
                self.state, self.ended, self.error, self.ended_at = "running", None, None, None
            case RunEnded(outcome):
                self.state, self.ended, self.ended_at = "ended", outcome.ended, event.at
                self.error = outcome.failure.kind if outcome.failure else None
                self.usage = larger(self.usage, outcome.usage)
                self.turns = max(self.turns, outcome.turns)
                self.tool_uses = max(self.tool_uses, outcome.tool_uses)


COUNTED = frozenset(
    {TurnStarted, ToolEnded, TurnEnded, AssistantEnded, Compacted, InboxOpened, InboxClosed}
    | {RunCreated, RunStarted, RunResumed, RunEnded}
)
"""The events that a tally takes anything from; there are as many others."""


def larger(counted: Usage, total: Usage, more: Usage | None = None) -> Usage:
    """`total` if it includes what was counted; else `counted` and `more`. A run that was resumed
    may report only what it spent since: the sum over its life must never shrink."""
    if total.input >= counted.input and total.output >= counted.output:
        return total
    return counted + more if more is not None else counted


IDENTITY = ("id", "parent_id", "root_id", "depth", "agent", "task", "cwd", "created_at")
CHANGING = (
    *("owner", "state", "ended", "error", "model", "transcript", "started_at", "ended_at", "turns", "tool_uses"),
    *("compactions", "input", "output", "cache_read", "cache_write", "cost_usd", "updated_at"),
)
COUNTS = (
    *("model", "turns", "tool_uses", "compactions"),
    *("input", "output", "cache_read", "cache_write", "cost_usd", "updated_at"),
)
"""For the many events that do not move a run to another state: it leaves the indexes alone."""
SELECT_RUN = f"SELECT {', '.join((*IDENTITY, *CHANGING))} FROM runs"  # noqa: S608


def identity(event: Event, body: RunCreated) -> tuple[object, ...]:
    task = body.task[:TASK_PREVIEW]
    return (event.run_id, event.parent_id, event.root_id, body.depth, body.agent, task, body.cwd, event.at)


def changing(tally: RunTally, owner: str) -> tuple[object, ...]:
    """The values of a row's changing columns. Only a live run has an owner."""
    usage = tally.usage
    return (
        owner if tally.state in LIVE else None,
        tally.state,
        tally.ended,
        tally.error,
        tally.model,
        tally.transcript,
        tally.started_at,
        tally.ended_at,
        tally.turns,
        tally.tool_uses,
        tally.compactions,
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.cost_usd,
        tally.updated_at,
    )


def counts(tally: RunTally) -> tuple[object, ...]:
    usage = tally.usage
    return (
        tally.model,
        tally.turns,
        tally.tool_uses,
        tally.compactions,
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.cost_usd,
        tally.updated_at,
    )


def tally_of(row: Any) -> RunTally:
    """The tally to go on with when a run is taken up again."""
    return RunTally(
        state=row["state"],
        ended=row["ended"],
        error=row["error"],
        model=row["model"],
        transcript=row["transcript"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        turns=row["turns"],
        tool_uses=row["tool_uses"],
        compactions=row["compactions"],
        usage=usage_of(row),
        updated_at=row["updated_at"],
    )


def usage_of(row: Any) -> Usage:
    return Usage(row["input"], row["output"], row["cache_read"], row["cache_write"], row["cost_usd"])


def run_of(row: Any, state: State, pid: int | None) -> RunRow:
    return RunRow(
        id=row["id"],
        parent_id=row["parent_id"],
        root_id=row["root_id"],
        depth=row["depth"],
        agent=row["agent"],
        task=row["task"],
        cwd=row["cwd"],
        model=row["model"],
        state=state,
        ended=row["ended"],
        error=row["error"],
        transcript=row["transcript"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        updated_at=row["updated_at"],
        turns=row["turns"],
        tool_uses=row["tool_uses"],
        compactions=row["compactions"],
        usage=usage_of(row),
        pid=pid,
    )
