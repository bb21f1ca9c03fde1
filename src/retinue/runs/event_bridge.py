"""Publishes events of the log on the bus, with the names and fields of pi-subagents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.events import Body, Compacted, Event, RunCreated, RunEnded, RunResumed, RunStarted
from retinue.core.outcome import SUCCESS, Outcome
from retinue.runs.bus import BusName, EventBus
from retinue.runs.rpc import Rpc

if TYPE_CHECKING:
    from retinue.core.clock import Timer
    from retinue.log.follow import Subscription
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor
    from retinue.settings.table import Settings

_ANNOUNCED = (RunCreated, RunStarted, RunResumed, Compacted, RunEnded)
SETTINGS_POLL_SECONDS = 1.0
_SECRET_SETTINGS = frozenset({"providers"})


class EventBridge:
    """The event bus and the remote calls of one supervisor, created on first use. A main agent is not a sub-agent: only
    runs below it, or without one, are announced."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.bus = EventBus(self._follow_log)
        self.rpc = Rpc(supervisor, self.bus)
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        if supervisor.opened:
            self.open()

    def open(self) -> None:
        """Accept calls of programs, and announce that to them, once the supervisor is open."""
        self.rpc.open()
        self._follow_log()
        self.bus.emit("subagents:settings_loaded", {"settings": settings_data(self._supervisor.settings)})
        self.bus.emit("subagents:ready", {})

    async def close(self) -> None:
        """Publish the remaining events of the log, and end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._subscription is not None:
            self._subscription.close()
            await asyncio.wait({self._task})

    def steered(self, node: Run, text: str) -> None:
        if node.depth > 0:
            self._emit("subagents:steered", node, {"message": text})

    def scheduled(self, data: Mapping[str, Any]) -> None:
        self.bus.emit("subagents:scheduled", dict(data))

    def scheduler_ready(self, jobs: int) -> None:
        self.bus.emit("subagents:scheduler_ready", {"jobCount": jobs})

    def settings_changed(self, persisted: bool) -> None:
        data = {"settings": settings_data(self._supervisor.settings), "persisted": persisted}
        self.bus.emit("subagents:settings_changed", data)

    def _follow_log(self) -> None:
        """Follow the log once there is a listener for its events."""
        if self._task is None and self._supervisor.opened and self.bus.has_listeners:
            self._subscription = self._supervisor.project.log.subscribe()
            self._task = asyncio.create_task(self._follow(self._subscription), name="event bus")
        if self._timer is None and self._supervisor.opened:
            self._schedule_settings_poll()

    def _schedule_settings_poll(self) -> None:
        """Poll the settings files while anyone listens to changes: a session without runs would not notice changes by
        other processes."""
        self._timer = None
        if self.bus.is_listened_to("subagents:settings_changed"):
            self._timer = self._supervisor.clock.call_later(SETTINGS_POLL_SECONDS, self._poll_settings)

    def _poll_settings(self) -> None:
        self._supervisor.notice_settings()
        self._schedule_settings_poll()

    async def _follow(self, subscription: Subscription) -> None:
        async for event in subscription:
            if isinstance(event.body, _ANNOUNCED):
                self._announce(event)

    def _announce(self, event: Event) -> None:
        node = self._supervisor.members.get(event.run_id)
        if node is None or node.depth == 0:
            return
        name, fields = self._fields(node, event.body, event.at)
        self._emit(name, node, fields)

    def _emit(self, name: BusName, node: Run, fields: dict[str, Any]) -> None:
        data = {key: value for key, value in {**_identity(node), **fields}.items() if value is not None}
        self.bus.emit(name, data, above=_above(node), nested=node.depth > 1)

    def _fields(self, node: Run, body: Body, at: float) -> tuple[BusName, dict[str, Any]]:
        match body:
            case RunCreated():
                return "subagents:created", {
                    "isBackground": node.state.background,
                    "status": "queued" if self._must_queue(node) else "running",
                    "startedAt": _milliseconds(at),
                    "toolUses": 0,
                    "invocation": _invocation(node),
                }
            case RunEnded(outcome):
                name: BusName = "subagents:completed" if outcome.ended in SUCCESS else "subagents:failed"
                return name, _ending(node, outcome, at)
            case Compacted():
                return "subagents:compacted", {
                    "reason": body.reason,
                    "tokensBefore": body.tokens_before,
                    "compactionCount": node.state.compactions,
                }
            case _:
                return "subagents:started", {}

    def _must_queue(self, node: Run) -> bool:
        """Return whether a run that is about to begin must wait for a slot."""
        queue = self._supervisor.queue
        if queue.position(node.id) is not None:
            return True
        waits = node.status == "queued" and node.state.background and node.depth <= 1
        return waits and queue.running >= queue.limit


def settings_data(settings: Settings) -> dict[str, Any]:
    """Return all settings by their names in files, except those that may contain a key."""
    return {
        field.name: getattr(settings, field.attribute)
        for field in settings.table()
        if field.attribute not in _SECRET_SETTINGS
    }


def _identity(node: Run) -> dict[str, Any]:
    parent = node.place.parent_id
    return {
        "id": node.id,
        "type": node.agent,
        "description": node.state.description,
        "depth": node.depth,
        "parentId": parent,
        "parentAgentId": parent if node.depth > 1 else None,
    }


def _above(node: Run) -> tuple[str, ...]:
    """Return the ids of the runs above a run, the nearest first."""
    ids = []
    ancestor = node.parent
    while ancestor is not None:
        ids.append(ancestor.id)
        ancestor = ancestor.parent
    return tuple(ids)


def _invocation(node: Run) -> dict[str, Any]:
    launch = node.launch
    return {
        "model": launch.model_name,
        "thinking": launch.thinking,
        "maxTurns": launch.limits.max_turns,
        "isolated": bool(launch.request.spec.isolated),
        "isolation": launch.request.isolation,
        "runInBackground": node.state.background,
    }


def _ending(node: Run, outcome: Outcome, at: float) -> dict[str, Any]:
    usage = outcome.usage
    ending: dict[str, Any] = {
        "status": outcome.ended,
        "result": outcome.text,
        "error": outcome.failure.message if outcome.failure else None,
        "toolUses": outcome.tool_uses,
        "durationMs": outcome.duration_ms,
        "startedAt": _milliseconds(node.state.began) if node.state.began else None,
        "completedAt": _milliseconds(at),
    }
    if usage.total_tokens:
        counts = {"input": usage.input, "output": usage.output}
        ending["tokens"] = {**counts, "total": usage.total_tokens}
        cached = {"cacheRead": usage.cache_read, "cacheWrite": usage.cache_write}
        ending["usage"] = {**counts, **cached, "cost": usage.cost_usd}
    return ending


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
