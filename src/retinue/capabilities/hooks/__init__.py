"""Hooks: programs of the user that hear what happens in a run, and may object to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.core.permission import NO_HOOKS
from retinue.runs.capability import Capability, Running, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.hooks import attach as _attach
    from retinue.capabilities.hooks import session as _session
    from retinue.capabilities.hooks import sources as _sources
    from retinue.core.outcome import Outcome
    from retinue.guard.trust import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.requests import Admission
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.hooks.attach")
    _session = LazyModule("retinue.capabilities.hooks.session")
    _sources = LazyModule("retinue.capabilities.hooks.sources")


class HooksCapability(Capability):
    """The hooks of a run, from before it is recorded until it has ended."""

    async def restrict(self, plan: LaunchPlan) -> None:
        hooks = plan.project.part(_session.SessionHooks)
        hooks.require_readable()
        if plan.request.parent_id is None:
            plan.notes += hooks.notes()

    async def admit(self, admission: Admission) -> None:
        if admission.launch.request.spec.hooks or not admission.project.part(_session.SessionHooks).is_empty:
            await _attach.admit(admission)

    def running(self, node: Run, *, resumed: bool) -> Running | None:
        return None if node.hooks is NO_HOOKS else self._running(node)

    @asynccontextmanager
    async def _running(self, node: Run) -> AsyncIterator[RunPart]:
        assert isinstance(node.hooks, _attach.RunHooks)
        hooks = node.hooks
        await hooks.begin(node)
        yield RunPart(
            introduce=hooks.introduce,
            watch=hooks.watch if hooks.watches else None,
            before_end=hooks.before_end,
            before_compact=hooks.before_compact,
        )

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.hooks is not NO_HOOKS and isinstance(node.hooks, _attach.RunHooks):
            await node.hooks.end(outcome)
        return outcome

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        return _sources.project_subjects(project.cwd, project.environment)
