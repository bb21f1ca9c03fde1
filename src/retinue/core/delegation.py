"""How a run starts and manages other runs: the contract between delegation tools and the supervisor.

The tools know only this file. The supervisor implements `Delegation` once per parent run, so that
depth, ownership, budget and rights of that run apply to every call, from any tool or front end.

The states of a run and all legal moves between them are one table here:

    queued → starting → running ⇄ waiting → ended
    interrupted: a run whose process died, as it is found later; it leads to running or ended

`starting` is not written to the log, because nothing happens in it that could be lost. The tests of
`runs` check every move they see against this table (`tests/runs/run_scene.py`).
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
    # Made by hand: importing `uuid` takes as long as a dozen of our modules.
    digits = os.urandom(7).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:]}"


def short_id(run_id: str) -> str:
    """The eight characters people type; unambiguous in practice, checked where it is used."""
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
    """What a caller asks for. None means "not said": the agent's file, then settings decide."""

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
    """A retry handle: the stored call is made again, with the fields given here replaced."""
    join: JoinMode | None = None
    call_id: str | None = None
    """The tool call that asked, if a tool did."""
    vocabulary: Vocabulary = "claude"


class Refusal(Struct, frozen=True, kw_only=True):
    """No run was started, steered or read. `code` is stable, `message` says what to do; `retry`
    is a handle under which the call is kept."""

    code: str
    message: str
    retry: str | None = None


class Scheduled(Struct, frozen=True, kw_only=True):
    """No run was started yet: a job will start it. `next_run` is when, as text."""

    id: str
    name: str
    kind: str
    next_run: str
    notes: tuple[str, ...] = ()


WaitEnd = Literal["completed", "timeout", "aborted", "pending_message"]


class Waited(Struct, frozen=True, kw_only=True):
    """What a wait ended with. Only `completed` consumes the result."""

    run: ActiveRun
    end: WaitEnd


class Delegation(Protocol):
    """One parent's way to other runs. Nothing here raises for what a model can get wrong: the
    answer is a Refusal. Ids are exact ids, unique beginnings of at least 4 characters, or handles. The states of runs
    that are returned are copies, which do not change any more."""

    async def spawn(self, call: SpawnCall) -> ActiveRun | Refusal:
        """Start or resume. Return when the run is in the log; a foreground run when it has
        ended. Cancelling it stops a foreground child and leaves a background one alone."""
        ...

    async def schedule(self, call: SpawnCall) -> Scheduled | Refusal:
        """Make a job of a call that has a `schedule`; everything about it is checked now."""
        ...

    def view(self, agent_id: str) -> ActiveRun | Refusal: ...

    async def wait(self, agent_id: str, seconds: float, call_id: str | None = None) -> Waited | Refusal:
        """Wait for the end, through the queue, at most `seconds`; return early when a steering
        message for the parent is pending. Cancelling ends only the wait. `call_id` is the tool
        call that waits: its own time limit stands still meanwhile."""
        ...

    def consume(self, agent_id: str, call_id: str | None = None) -> None:
        """Note that the call `call_id` carries the result of an ended run: its notification is not needed."""
        ...

    def steer(self, agent_id: str, message: str) -> ActiveRun | Refusal: ...

    def children(self) -> tuple[ActiveRun, ...]:
        """The parent's own children, newest first."""
        ...

    def clear(self, agent_ids: tuple[str, ...], older_than_minutes: float, include_errors: bool) -> tuple[str, ...]:
        """Forget ended children (their log stays). Return the ids that were cleared."""
        ...

    def transcript_lines(self, agent_id: str) -> list[str]:
        """Return what the run has said and read so far, as plain lines."""
        ...

    def conversation(self, agent_id: str) -> str:
        """The whole conversation as text, tool results shortened, for `verbose`."""
        ...
