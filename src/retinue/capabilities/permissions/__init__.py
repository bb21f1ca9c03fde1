"""What a run may do unasked, what it must ask, and what it may not do: rules, modes and the gate before its tools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, Wrap
from retinue.runs.guard import RunGuards

if TYPE_CHECKING:
    from retinue.core.outcome import Outcome
    from retinue.core.spec import PermissionMode
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class PermissionsCapability(Capability):
    """The mode of a run, the tools its rules leave it, and the gate before every call."""

    async def restrict(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.permissions.attach import mode_for

        plan.mode = mode_for(plan.request, plan.project, plan.mode_above, plan.notes)

    async def offer(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.permissions.attach import permit_tools

        plan.permit = partial(permit_tools, plan.request, plan.project)

    def wrap(self, node: RunNode, inner: Wrap, *, resumed: bool) -> Wrap:
        from retinue.capabilities.permissions.gatekeeper import gatekeeper

        return gatekeeper(node, inner, resumed=resumed)

    def permissions_before_run(
        self, project: Project, grants: Sequence[str], mode: PermissionMode | None
    ) -> PermissionPolicy | None:
        from retinue.capabilities.permissions.attach import permissions_before_run

        return permissions_before_run(project, grants, mode)

    def denied_agents(self, project: Project) -> frozenset[str]:
        from retinue.capabilities.permissions.attach import denied_agents

        return denied_agents(project)

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        if node.id in node.project.part(RunGuards):
            from retinue.capabilities.permissions.gatekeeper import release

            await release(node)
        return outcome

    async def close(self, node: RunNode) -> None:
        node.project.part(RunGuards).pop(node.id, None)
