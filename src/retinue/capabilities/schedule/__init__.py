"""Agents that start at a given time: their schedules, the claim of each slot, and the result of each start."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Scheduling

if TYPE_CHECKING:
    from retinue.capabilities.schedule import scheduler as _scheduler
    from retinue.capabilities.schedule import start as _start
    from retinue.core.delegation import Refusal, Scheduled, SpawnCall
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor
else:
    _scheduler = LazyModule("retinue.capabilities.schedule.scheduler")
    _start = LazyModule("retinue.capabilities.schedule.start")


def scheduler_of(supervisor: Supervisor) -> _scheduler.Scheduler:
    """Return what starts agents of the supervisor at a time. It costs nothing until it is used."""
    if not isinstance(supervisor.schedules, _scheduler.Scheduler):
        supervisor.schedules = _scheduler.Scheduler(supervisor)
    return supervisor.schedules


class ScheduledAgents(Scheduling):
    """The calls by which agents schedule others."""

    async def schedule(self, node: Run, call: SpawnCall) -> Scheduled | Refusal:
        supervisor = cast("Supervisor", node.supervisor)
        return await _start.schedule_call(scheduler_of(supervisor), supervisor, node, call)
