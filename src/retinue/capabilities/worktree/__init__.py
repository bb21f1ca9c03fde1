"""Git worktrees in which runs work apart from the checkout, and the branches their work is saved on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.errors import LaunchError
from retinue.runs.capability import Capability, Wrap

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.core.outcome import Outcome
    from retinue.core.tool import ToolContext
    from retinue.runs.admission import Admission
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class WorktreeCapability(Capability):
    """The worktree of a run that asks for one, or that was started inside of one."""

    async def restrict(self, plan: LaunchPlan) -> None:
        if plan.preview:
            if plan.spec.isolation == "worktree" and plan.settings.worktree_isolation:
                plan.note("it works in a worktree of its own: that folder, and the notice about it, are not shown")
            return
        if plan.request.placement is not None:
            # Its worktree is made where it works.
            return
        wanted = "worktree" in (plan.request.isolation, plan.spec.isolation)
        # `worktrees` is in the path of every worktree of ours: a run may be started inside of one.
        if plan.run_id and (wanted or "worktrees" in plan.request.cwd.parts):
            from retinue.capabilities.worktree.attach import choose_workspace

            await choose_workspace(plan)
        if plan.project.moved is not None and plan.isolation is None:
            raise LaunchError("A run of another machine works in a worktree, and this one has none.")

    def equip(self, plan: LaunchPlan) -> None:
        if plan.isolation is not None:
            from retinue.capabilities.worktree.attach import make_shell_safe

            make_shell_safe(plan, plan.isolation)

    def brief(self, plan: LaunchPlan) -> None:
        if plan.isolation is not None:
            from retinue.capabilities.worktree.tools import worktree_notice

            top, main = plan.isolation.top, plan.isolation.main
            plan.tell("worktree", worktree_notice(top, main, from_dirty=plan.settings.worktree_from_dirty))

    async def admit(self, admission: Admission) -> None:
        isolation = admission.launch.isolation
        if isolation is not None and not admission.resumed:
            from retinue.capabilities.worktree.attach import announce_creation

            await announce_creation(admission.hooks, isolation)

    async def discard(self, launch: Launch | LaunchPlan, project: Project) -> None:
        if launch.isolation is not None and launch.isolation.own:
            from retinue.capabilities.worktree.attach import discard_worktree

            await discard_worktree(project, launch.isolation.run)

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        isolation = node.handle.launch.isolation
        if isolation is None:
            return context
        from retinue.capabilities.worktree.attach import confine_to_worktree

        return confine_to_worktree(context, isolation)

    def wrap(self, node: RunNode, inner: Wrap, *, resumed: bool) -> Wrap:
        isolation = node.handle.launch.isolation
        if isolation is None:
            return inner
        from retinue.capabilities.worktree.tools import check_foreign_tools

        return lambda tools: check_foreign_tools(inner(tools), isolation)

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        if node.handle.launch.isolation is None:
            return outcome
        from retinue.capabilities.worktree.attach import save_worktree

        return await save_worktree(node, outcome)

    def open_runs(self, state: Path) -> Sequence[str]:
        from retinue.capabilities.worktree.home import load_records

        return [record.run for record in load_records(state)]
