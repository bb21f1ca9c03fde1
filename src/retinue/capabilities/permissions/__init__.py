"""What a run may do unasked, what it must ask, and what it may not do: rules, modes and the gate before its tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, RunPart
from retinue.runs.guard import RunGuards
from retinue.runs.services import Rules

if TYPE_CHECKING:
    from retinue.capabilities.permissions import attach as _attach
    from retinue.capabilities.permissions import gatekeeper as _gatekeeper
    from retinue.core.outcome import Outcome
    from retinue.core.spec import PermissionMode
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.permissions.attach")
    _gatekeeper = LazyModule("retinue.capabilities.permissions.gatekeeper")


class PermissionsCapability(Capability):
    """The mode of a run, the tools its rules leave it, and the gate before every call."""

    async def restrict(self, plan: LaunchPlan) -> None:
        plan.mode = _attach.mode_for(plan.request, plan.project, plan.mode_above, plan.notes)

    async def offer(self, plan: LaunchPlan) -> None:
        plan.permit = partial(_attach.permit_tools, plan.request, plan.project)

    @asynccontextmanager
    async def running(self, node: Run, *, resumed: bool) -> AsyncIterator[RunPart]:
        try:
            yield RunPart(wrap=lambda inner: _gatekeeper.guard_run(node, inner, resumed=resumed))
        finally:
            node.project.part(RunGuards).pop(node.id, None)

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.id in node.project.part(RunGuards):
            await _gatekeeper.release(node)
        return outcome


class FileRules(Rules):
    """The rules of all files that count for the project."""

    def denied_agents(self) -> frozenset[str]:
        return _attach.denied_agents(self.project)

    def permissions(self, grants: Sequence[str], mode: PermissionMode | None) -> PermissionPolicy:
        return _attach.permissions_before_run(self.project, grants, mode)
