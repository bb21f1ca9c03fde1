"""Agents that start at a given time: their schedules, the claim of each slot, and the result of each start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.capabilities.schedule.scheduler import Scheduler
    from retinue.core.delegation import Refusal, Scheduled, SpawnCall
    from retinue.runs.node import RunNode
    from retinue.runs.supervisor import Supervisor


class ScheduleCapability(Capability):
    """The scheduler of a supervisor, and the calls by which agents schedule others."""

    def scheduler(self, supervisor: Supervisor) -> Scheduler:
        from retinue.capabilities.schedule.scheduler import Scheduler

        return Scheduler(supervisor)

    async def schedule(self, supervisor: Supervisor, node: RunNode, call: SpawnCall) -> Scheduled | Refusal:
        from retinue.capabilities.schedule.start import schedule_call

        return await schedule_call(supervisor, node, call)
