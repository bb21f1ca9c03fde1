"""How a run starts and manages other runs: the interface between delegation tools and the supervisor.

The tools know only this file. The supervisor implements `Delegation` for each parent run, so that depth, ownership,
budget and rights of that run apply to every call, from any tool or front end.

The states of a run and all legal moves between them are one table here:

    queued → starting → running ⇄ waiting → ended
    interrupted: a run whose process died, as it is found later; it leads to running or ended

`starting` is not written to the log, because nothing happens in it that could be lost. The tests of `runs` check every
change of state against this table (`tests/runs/run_scene.py`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from retinue.core.usage import Budget

if TYPE_CHECKING:
    from retinue.core.run_state import ActiveRun


def new_run_id() -> str:
    """Return the first 17 characters of a random UUID, as the pi family prints it."""
    # Importing `uuid` would take as long as a dozen of our modules.
    digits = os.urandom(7).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:]}"


def short_id(run_id: str) -> str:
    """Return the eight characters by which people name a run. Callers check that they are unambiguous."""
    return run_id[:8]


State = Literal["queued", "starting", "running", "waiting", "interrupted", "ended"]

MOVES: dict[State, frozenset[State]] = {
    "queued": frozenset({"starting", "running", "ended", "interrupted"}),
    "starting": frozenset({"running", "ended", "interrupted"}),
    "running": frozenset({"waiting", "ended", "interrupted"}),
    "waiting": frozenset({"running", "ended", "interrupted"}),
    "interrupted": frozenset({"queued", "starting", "running", "ended"}),
    # Only a resume reopens an ended run.
    "ended": frozenset({"queued", "starting", "running"}),
}

LIVE: frozenset[State] = frozenset({"queued", "starting", "running", "waiting"})


Status = Literal[
    "queued",
    "starting",
    "running",
    "waiting",
    "interrupted",
    "completed",
    "steered",
    "aborted",
    "stopped",
    "timeout",
    "over-budget",
    "refused",
    "error",
]
JoinMode = Literal["async", "smart", "group"]
Vocabulary = Literal["claude", "devkit", "codingcode"]

LIVE_STATUSES: frozenset[Status] = frozenset({"queued", "starting", "running", "waiting"})


class SpawnCall(Struct, frozen=True, kw_only=True):
    """A call that starts a run. For a value of None the agent's file decides, and then the settings."""

    prompt: str
    description: str = ""
    agent: str | None = None
    model: str | None = None
    thinking: str | None = None
    max_turns: int | None = None
    budget: Budget | None = None
    background: bool | None = None
    resume: str | None = None
    isolated: bool | None = None
    isolation: Literal["worktree", "off"] | None = None
    inherit_context: bool | None = None
    schedule: str | None = None
    name: str | None = None
    retry: str | None = None
    """A retry handle: the stored call is repeated, with the fields of this call replaced."""
    join: JoinMode | None = None
    call_id: str | None = None
    """The tool call, if a tool made the request."""
    vocabulary: Vocabulary = "claude"


class Refusal(Struct, frozen=True, kw_only=True):
    """No run was started, steered or read. `code` is stable, `message` tells what to do, and `retry` is a handle of the
    stored call."""

    code: str
    message: str
    retry: str | None = None


class Scheduled(Struct, frozen=True, kw_only=True):
    """A job that will start a run. `next_run` is the time, as text."""

    id: str
    name: str
    kind: str
    next_run: str
    notes: tuple[str, ...] = ()


WaitEnd = Literal["completed", "timeout", "aborted", "pending_message"]


class Waited(Struct, frozen=True, kw_only=True):
    """The result of a wait. Only `completed` consumes the result of the run."""

    run: ActiveRun
    end: WaitEnd


class Delegation(Protocol):
    """The access of one parent to other runs. A mistake of a model does not raise an exception but returns a Refusal.
    Ids are exact ids, unique beginnings of at least 4 characters, or handles. The states that are returned are copies,
    which do not change."""

    async def spawn(self, call: SpawnCall) -> ActiveRun | Refusal:
        """Start or resume a run. Return when it is in the log, or for a foreground run when it has ended. Cancelling
        the call stops a foreground child, but not a background one."""
        ...

    async def schedule(self, call: SpawnCall) -> Scheduled | Refusal:
        """Make a job of a call that has a `schedule`. The whole call is checked now."""
        ...

    def view(self, agent_id: str) -> ActiveRun | Refusal: ...

    async def wait(self, agent_id: str, seconds: float, call_id: str | None = None) -> Waited | Refusal:
        """Wait at most `seconds` for the end of a run, which may still be queued. Return early if a steering message
        for the parent is pending. Cancelling the call only ends the wait. The time limit of the tool call `call_id` is
        suspended meanwhile."""
        ...

    def consume(self, agent_id: str, call_id: str | None = None) -> None:
        """Record that the call `call_id` returns the result of an ended run, so that no notification is sent."""
        ...

    def steer(self, agent_id: str, message: str) -> ActiveRun | Refusal: ...

    def children(self) -> tuple[ActiveRun, ...]:
        """Return the parent's own children, newest first."""
        ...

    def clear(self, agent_ids: tuple[str, ...], older_than_minutes: float, include_errors: bool) -> tuple[str, ...]:
        """Forget ended children, whose logs stay. Return their ids."""
        ...

    def transcript_lines(self, agent_id: str) -> list[str]:
        """Return the texts and results of a run so far, as plain lines."""
        ...

    def conversation(self, agent_id: str) -> str:
        """Return the complete conversation as text, with shortened tool results."""
        ...
