"""Git worktrees in which runs work apart from the checkout, and the branches their work is saved on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.errors import LaunchError
from retinue.runs.capability import Capability, RunPart, UnsavedWork

if TYPE_CHECKING:
    from retinue.capabilities.worktree import attach as _attach
    from retinue.capabilities.worktree import record as _record
    from retinue.capabilities.worktree import tools as _tools
    from retinue.core.outcome import Outcome
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.worktree.attach")
    _record = LazyModule("retinue.capabilities.worktree.record")
    _tools = LazyModule("retinue.capabilities.worktree.tools")


class WorktreeCapability(Capability):
    """The worktree of a run that asks for one, or that was started inside of one."""

    async def restrict(self, plan: LaunchPlan) -> None:
        if plan.preview:
            if plan.spec.isolation == "worktree" and plan.settings.worktree_isolation:
                plan.note("it works in a separate worktree: that folder and the notice about it are not shown")
            return
        if plan.request.placement is not None:
            # Its worktree is made where it works.
            return
        asks_for_own = "worktree" in (plan.request.isolation, plan.spec.isolation)
        # `worktrees` is in the path of every worktree of ours: a run may be started inside of one.
        if plan.run_id and (asks_for_own or "worktrees" in plan.request.cwd.parts):
            await _attach.choose_workspace(plan)
        if plan.project.moved is not None and plan.isolation is None:
            raise LaunchError("A run of another machine works in a worktree, and this one has none.")

    def equip(self, plan: LaunchPlan) -> None:
        if plan.isolation is not None:
            _attach.make_shell_safe(plan, plan.isolation)

    def brief(self, plan: LaunchPlan) -> None:
        if plan.isolation is not None:
            top, main = plan.isolation.top, plan.isolation.main
            plan.tell("worktree", _tools.worktree_notice(top, main, from_dirty=plan.settings.worktree_from_dirty))

    async def admit(self, plan: LaunchPlan) -> None:
        if plan.isolation is not None and not plan.resumed:
            await _attach.announce_creation(plan.hooks, plan.isolation)

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        isolation = node.launch.isolation
        if isolation is None:
            return None
        return RunPart(
            context=lambda context: _attach.confine_to_worktree(context, isolation),
            wrap=lambda inner: lambda wrapped: _tools.check_foreign_tools(inner(wrapped), isolation),
        )

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.launch.isolation is None:
            return outcome
        return await _attach.save_worktree(node, outcome)


class WorktreeWork(UnsavedWork):
    """The worktrees of the project."""

    def runs(self) -> Sequence[str]:
        return [record.run for record in _record.load_records(self.project.state)]
