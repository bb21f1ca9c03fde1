"""A parent's way to other runs, in memory: everything the tools may rely on and nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from retinue.core.delegation import LIVE_STATUSES, Refusal, Scheduled, SpawnCall, Status, Waited
from retinue.core.outcome import Failure, Outcome
from retinue.core.run_state import ActiveRun
from retinue.testing import FakeClock

STEERABLE: frozenset[Status] = frozenset({"starting", "running", "waiting"})


def make_child(
    status: Any = "completed",
    text: str = "",
    error: str | None = None,
    partial: bool = False,
    duration_ms: int = 0,
    context_percent: float = 0.0,
    outcome: Outcome | None = None,
    **fields: Any,
) -> ActiveRun:
    """Return the state of a run of this status; `text` is its result."""
    run = ActiveRun(**{"id": "abc-1", "agent": "Explore", "display_name": "Explore", "description": "look", **fields})
    run.context_tokens, run.window = round(context_percent * 10), 1_000
    if status in LIVE_STATUSES or status == "interrupted":
        run.state, run.text = status, text
        return run
    run.state, run.ended = "ended", status
    failure = Failure("internal", error) if error else None
    run.outcome = outcome or Outcome(status, text, partial=partial, failure=failure, duration_ms=duration_ms)
    return run


class FakeDelegate:
    """Runs do nothing by themselves: a test says how they go on. `plan` is what the next calls
    of `spawn` give: a refusal, or what differs from a run that has just started."""

    def __init__(self, *plan: Refusal | Mapping[str, Any]) -> None:
        self.plan = list(plan)
        self.clock = FakeClock()
        self.calls: list[SpawnCall] = []
        self.messages: list[tuple[str, str]] = []
        self.consumed: list[str] = []
        self.waits: list[tuple[str, float, str | None]] = []
        self.lines: dict[str, list[str]] = {}
        self.talk: dict[str, str] = {}
        self.pending_message = asyncio.Event()
        self._fields: dict[str, dict[str, Any]] = {}
        self._views: dict[str, ActiveRun] = {}
        self._changed = asyncio.Event()

    def add(self, status: Status = "running", **fields: Any) -> ActiveRun:
        number = len(self._views) + 1
        given = {"id": f"{number:08x}-aaaa-bbb", "description": f"task {number}", "began": self.clock.now(), **fields}
        self._fields[given["id"]] = {"status": status, **given}
        self.change(given["id"])
        return self._views[given["id"]]

    def change(self, run_id: str, **fields: Any) -> None:
        self._fields[run_id] |= fields
        self._views[run_id] = make_child(**self._fields[run_id])
        self._changed.set()
        self._changed = asyncio.Event()

    async def schedule(self, call: SpawnCall) -> Scheduled | Refusal:
        self.calls.append(call)
        planned = self.plan.pop(0) if self.plan else {}
        if isinstance(planned, Refusal):
            return planned
        return Scheduled(id="job-1", name=call.description, kind="cron", next_run="2027-01-01T09:00:00+00:00")

    async def spawn(self, call: SpawnCall) -> ActiveRun | Refusal:
        self.calls.append(call)
        planned = self.plan.pop(0) if self.plan else {}
        if isinstance(planned, Refusal):
            return planned
        name = call.agent or "general-purpose"
        given = {"agent": name, "display_name": name, "description": call.description, "call_id": call.call_id}
        return self.add(**{**given, "background": call.background is not False, **planned})

    def view(self, agent_id: str) -> ActiveRun | Refusal:
        for view in self._views.values():
            if agent_id in (view.id, view.name) or (len(agent_id) >= 4 and view.id.startswith(agent_id)):
                return view
        return Refusal(code="UNKNOWN_RUN", message=f'Agent not found: "{agent_id}". It may have been cleaned up.')

    async def wait(self, agent_id: str, seconds: float, call_id: str | None = None) -> Waited | Refusal:
        self.waits.append((agent_id, seconds, call_id))
        timeout = asyncio.ensure_future(self.clock.sleep(seconds))
        message = asyncio.ensure_future(self.pending_message.wait())
        try:
            while True:
                view = self.view(agent_id)
                if isinstance(view, Refusal):
                    return view
                if not view.live:
                    return Waited(run=view, end="completed")
                if message.done():
                    return Waited(run=view, end="pending_message")
                if timeout.done():
                    return Waited(run=view, end="timeout")
                change = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({timeout, message, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
        finally:
            timeout.cancel()
            message.cancel()

    def consume(self, agent_id: str, call_id: str | None = None) -> None:
        self.consumed.append(agent_id)

    def steer(self, agent_id: str, message: str) -> ActiveRun | Refusal:
        view = self.view(agent_id)
        if isinstance(view, Refusal):
            return view
        if view.status not in STEERABLE:
            return Refusal(code="NOT_RUNNING", message=f"Agent {view.id} is {view.status}: it cannot be steered.")
        self.messages.append((view.id, message))
        return view

    def children(self) -> tuple[ActiveRun, ...]:
        return tuple(reversed(self._views.values()))

    def clear(self, agent_ids: tuple[str, ...], older_than_minutes: float, include_errors: bool) -> tuple[str, ...]:
        gone = []
        for view in self._views.values():
            old = self.clock.now() - (view.ended_at or self.clock.now()) >= older_than_minutes * 60
            chosen = view.id in agent_ids if agent_ids else old
            if not view.live and chosen and (include_errors or view.status in ("completed", "steered")):
                gone.append(view.id)
        for run_id in gone:
            del self._views[run_id]
        return tuple(gone)

    def transcript_lines(self, agent_id: str) -> list[str]:
        return self.lines.get(agent_id, [])

    def conversation(self, agent_id: str) -> str:
        return self.talk.get(agent_id, "")
