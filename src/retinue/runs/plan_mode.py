"""The end of plan mode: a person says yes to the plan, and the run goes on with the rights it lacked.

The prompt and the tools that the model has seen stay as they are, so that what a provider has
cached stays good; the tools that plan mode kept away are added behind them. The log says which
mode holds since, so that a run that is taken up again has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.events import APPROVED, Warned
from retinue.core.tool import Reply
from retinue.runs.guard import RunGuards
from retinue.runs.launch import LaunchPlan
from retinue.runs.offer import connect_patches, with_hidden_patches, with_patches
from retinue.runs.plan import choose_tools, is_readonly

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode
    from retinue.core.tool import Tool, ToolContext
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project

QUESTION = "Carry out this plan?"
OPTIONS = ("Yes, and accept edits", "Yes, and ask before each change", "No, go on planning")
_NOBODY = frozenset({"policy", "expiry"})


class PlanMode:
    """Of one run that began in plan mode, for one attempt of it. `wrap` guards tools that it gets
    later; `guarded` are those it has."""

    def __init__(
        self,
        node: RunNode,
        project: Project,
        context: ToolContext,
        wrap: Callable[[tuple[Tool, ...]], tuple[Tool, ...]],
        guarded: tuple[Tool, ...],
    ) -> None:
        self._node = node
        self._project = project
        self._context = context
        self._wrap = wrap
        self._guarded = guarded
        self.tools: tuple[Tool, ...] = ()
        """What the run has got since its plan was approved, behind its gate."""

    async def hand_in(self, plan: str, call_id: str) -> Reply:
        """Ask a person whether the plan is to be carried out. After a yes the mode is another one."""
        node, guard = self._node, self._project.part(RunGuards).get(self._node.id)
        if node.handle.launch.mode != "plan":
            return Reply("answered", "Plan mode is over already: go on with your work.")
        if guard is None or not self._project.can_ask:
            return Reply("nobody")
        plan = self._project.redactor(plan)
        with node.handle.controls.waiting(call_id):
            answer = await self._project.inbox_service.question(
                QUESTION, OPTIONS, asker=guard.asker, call_id=call_id, detail=plan
            )
        if answer.by in _NOBODY:
            return Reply("nobody")
        said = " ".join(filter(None, (answer.choice, answer.message))).strip()
        if not said.casefold().startswith("yes"):
            words = said if said != OPTIONS[-1] else "The person wants another plan."
            return Reply("answered", f"Not approved: {words} You are still in plan mode.", answer.by or "")
        mode: PermissionMode = "acceptEdits" if answer.choice == OPTIONS[0] else "default"
        more = answer.message if answer.choice in OPTIONS else said
        return Reply("answered", f"{await self._leave(mode)} {more}".rstrip(), answer.by or "")

    async def _leave(self, mode: PermissionMode) -> str:
        """Give the run the tools and the rights of `mode`. Return what its model should know."""
        node, project = self._node, self._project
        launch, notes = node.handle.launch, list[str]()
        request = replace(launch.request, permission_mode=mode)
        if is_readonly(request, mode, project.settings.settings, notes):
            return "Approved, but this agent is read-only in every mode: end with the plan as your answer."
        plan = LaunchPlan(request, project, mode=mode, isolation=launch.isolation, state=dict(launch.state))
        await choose_tools(plan)
        known = {tool.spec.name for tool in launch.tools}
        chosen = with_patches((*launch.tools, *plan.tools.values()), launch.model.info.id)
        new = tuple({tool.spec.name: tool for tool in chosen if tool.spec.name not in known}.values())
        changed = replace(launch, request=request, mode=mode, readonly=False, tools=(*launch.tools, *new))
        node.handle.launch = changed
        project.part(RunGuards)[node.id].permissions.mode = mode
        for change_rights in project.capabilities.each("change_rights"):
            change_rights(node, self._context)
        everything = (*self._guarded, *self._wrap(new))
        connect_patches(changed, everything)
        self.tools = with_hidden_patches(everything, self._wrap)[len(self._guarded) :]
        body = Warned(APPROVED, f"The plan was approved: the permission mode is {mode} now.")
        project.log.append(node.handle.place, body)
        node.observe(body)
        names = ", ".join(tool.spec.name for tool in new)
        gained = f" You have got more tools: {names}." if names else ""
        return f"Approved. Plan mode is over: carry out the plan now, and check it.{gained}"
