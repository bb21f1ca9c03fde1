"""Agents that watch another agent at work: they get digests of what it does, and report; they take no part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.core.events import Body
    from retinue.core.outcome import Outcome
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode


class ObserverCapability(Capability):
    """The observers that an agent's file names, from the first digest to the end of the run that they watch."""

    async def offer(self, plan: LaunchPlan) -> None:
        if plan.request.observes:
            from retinue.capabilities.observer.messages import offer_report

            offer_report(plan)

    def equip(self, plan: LaunchPlan) -> None:
        if plan.request.observes:
            from retinue.capabilities.observer.messages import equip_observer

            equip_observer(plan)
        elif plan.spec.observer:
            from retinue.capabilities.observer.attach import choose_observers

            choose_observers(plan)

    async def open(self, node: RunNode, *, resumed: bool) -> None:
        if node.observes:
            from retinue.capabilities.observer.messages import connect_report

            connect_report(node)
        elif resumed and _was_told(node):
            from retinue.capabilities.observer.messages import repeat_reports

            repeat_reports(node)

    def observer(self, node: RunNode) -> Callable[[Body], None] | None:
        if not node.handle.launch.request.spec.observer:
            return None
        from retinue.capabilities.observer.attach import watch_run

        return watch_run(node)

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        if node.handle.launch.request.spec.observer:
            from retinue.capabilities.observer.attach import end_observers

            await end_observers(node, outcome)
        return outcome

    async def close(self, node: RunNode) -> None:
        if node.handle.launch.request.spec.observer:
            from retinue.capabilities.observer.attach import release_observers

            release_observers(node)


def _was_told(node: RunNode) -> bool:
    """Return whether observers have reported anything to the run."""
    from retinue.core.events import REPORTED, Warned

    warned = node.project.log.reader.stream(node.id, types=("run.warned",))
    return any(isinstance(event.body, Warned) and event.body.code == REPORTED for event in warned)
