"""Agents that start at a time, as runs know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from retinue.core.delegation import Refusal, Scheduled, SpawnCall
from retinue.runs.services import Service

if TYPE_CHECKING:
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor


class Schedules(Protocol):
    """What starts agents of one supervisor at a time."""

    async def end(self) -> None:
        """Start none any more."""


class Scheduling(Service):
    """The calls by which agents schedule others."""

    async def schedule(self, supervisor: Supervisor, node: Run, call: SpawnCall) -> Scheduled | Refusal:
        """Carry out such a call of the run `node`."""
        return Refusal(code="UNSUPPORTED", message="Nothing is scheduled here: leave out `schedule`.")
