"""Hooks: programs of the user that hear what happens in a run, and may object to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from retinue.runs.capability import Capability, loaded_module

if TYPE_CHECKING:
    from retinue.capabilities.hooks.attach import RunHooks
    from retinue.core.events import Body
    from retinue.core.outcome import Outcome
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.admission import Admission
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class HooksCapability(Capability):
    """The hooks of a run, from before it is recorded until it has ended."""

    async def restrict(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.hooks.session import SessionHooks

        hooks = plan.project.part(SessionHooks)
        hooks.require_readable()
        if plan.request.parent_id is None:
            plan.notes += hooks.notes()

    async def admit(self, admission: Admission) -> None:
        from retinue.capabilities.hooks.session import SessionHooks

        if not admission.launch.request.spec.hooks and admission.project.part(SessionHooks).is_empty:
            return
        from retinue.capabilities.hooks.attach import admit

        await admit(admission)

    async def open(self, node: RunNode, *, resumed: bool) -> None:
        hooks = _hooks(node)
        if hooks is not None:
            await hooks.begin(node.handle)

    def introduce(self, node: RunNode, prompt: str) -> str:
        hooks = _hooks(node)
        return prompt if hooks is None else hooks.introduce(prompt)

    def watcher(self, node: RunNode) -> Callable[[Body], Awaitable[None]] | None:
        hooks = _hooks(node)
        return hooks.watch if hooks is not None and hooks.watches else None

    def before_end(self, node: RunNode) -> Callable[[], Any] | None:
        hooks = _hooks(node)
        return None if hooks is None else hooks.before_end

    def before_compact(self, node: RunNode) -> Callable[[str], Any] | None:
        hooks = _hooks(node)
        return None if hooks is None else hooks.before_compact

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        hooks = _hooks(node)
        if hooks is not None:
            await hooks.end(outcome)
        return outcome

    async def close(self, node: RunNode) -> None:
        hooks = _hooks(node)
        if hooks is not None:
            await hooks.close()
            node.end_notes[:0] = hooks.take_notes()

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        from retinue.capabilities.hooks.sources import project_subjects

        return project_subjects(project.cwd, project.environment)


def _hooks(node: RunNode) -> RunHooks | None:
    # A run can have hooks only if the module that makes them is loaded.
    attach = loaded_module("retinue.capabilities.hooks.attach")
    if attach is None or not isinstance(node.hooks, attach.RunHooks):
        return None
    hooks: RunHooks = node.hooks
    return hooks
