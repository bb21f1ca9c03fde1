"""Changes of the permission mode of a live main run: by a person, or by the approval of its plan.

The prompt and the tools of earlier requests stay unchanged, so that the provider's cache stays valid. The tools that
plan mode withheld are added after them. The log records the mode, so that a resumed run has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from retinue.core.events import ModeChanged
from retinue.core.messages import ModeNotice, notification
from retinue.core.tool import Reply
from retinue.runs.guard import RunGuards
from retinue.runs.launch import LaunchPlan
from retinue.runs.offer import connect_patches, with_hidden_patches, with_patches
from retinue.runs.plan import choose_tools, is_readonly

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode
    from retinue.core.tool import Tool, ToolContext
    from retinue.runs.run import Run

PLAN_QUESTION = "Carry out this plan?"
PLAN_OPTIONS = ("Yes, and accept edits", "Yes, and ask before each change", "No, go on planning")
_NOT_A_PERSON = frozenset({"policy", "expiry"})


PLAN_MODE_BEGUN = (
    "The person has switched to plan mode: change nothing from now on. Study what you need, then hand in a plan with "
    "exit_plan."
)
PLAN_MODE_ENDED = "The person has ended plan mode: you may make changes again, in the permission mode {}."


def announce_mode(node: Run, before: PermissionMode | None) -> None:
    """Record the mode that a person chose for a resumed run, and notify its model if plan mode begins or ends."""
    mode = node.mode
    record_mode(node, mode)
    if mode == "plan" and before != "plan":
        node.controls.deliver(notification(PLAN_MODE_BEGUN, ModeNotice(mode)))
    elif mode != "plan" and before == "plan":
        node.controls.deliver(notification(PLAN_MODE_ENDED.format(mode), ModeNotice(mode)))


def record_mode(node: Run, mode: PermissionMode, cause: Literal["person", "plan"] = "person") -> None:
    """Record the mode from now on."""
    node.record(ModeChanged(mode, cause))


class PlanMode:
    """The mode of one attempt of a main run. `wrap` guards tools that are added later; `guarded` are its present
    tools."""

    def __init__(
        self,
        node: Run,
        context: ToolContext,
        wrap: Callable[[tuple[Tool, ...]], tuple[Tool, ...]],
        guarded: tuple[Tool, ...],
    ) -> None:
        self._node = node
        self._project = node.project
        self._context = context
        self._wrap = wrap
        self._guarded = guarded
        self.tools: tuple[Tool, ...] = ()
        """The guarded tools that were added by changes of the mode."""

    async def submit_plan(self, plan: str, call_id: str) -> Reply:
        """Ask a person whether to carry out the plan. An approval changes the mode."""
        node, guard = self._node, self._project.part(RunGuards).get(self._node.id)
        if node.mode != "plan":
            return Reply("answered", "Plan mode is over already: continue your work.")
        if guard is None or not self._project.can_ask:
            return Reply("nobody")
        plan = self._project.redactor(plan)
        with node.controls.waiting(call_id):
            answer = await self._project.inbox_service.question(
                PLAN_QUESTION, PLAN_OPTIONS, asker=guard.asker, call_id=call_id, detail=plan
            )
        if answer.by in _NOT_A_PERSON:
            return Reply("nobody")
        text = " ".join(filter(None, (answer.choice, answer.message))).strip()
        if not text.casefold().startswith("yes"):
            reason = text if text != PLAN_OPTIONS[-1] else "The person wants another plan."
            return Reply("answered", f"Not approved: {reason} You are still in plan mode.", answer.by or "")
        mode: PermissionMode = "acceptEdits" if answer.choice == PLAN_OPTIONS[0] else "default"
        message = answer.message if answer.choice in PLAN_OPTIONS else text
        return Reply("answered", f"{await self._leave(mode)} {message}".rstrip(), answer.by or "")

    async def change(self, mode: PermissionMode) -> None:
        """Set `mode` from the run's next call on. The model learns it from a refused call or from the answer to its
        plan: a separate message would make a finished agent answer again."""
        node, before = self._node, self._node.mode
        if mode == before:
            return
        if mode == "plan":
            self._change(mode, self._new_tools([self._project.tools["exit_plan"]]), readonly=True)
        elif before != "plan":
            self._change(mode, (), readonly=node.readonly)
        elif await self._take_up(mode) is None:
            # Its file makes it read-only: only the mode changes.
            self._change(mode, (), readonly=True)
        record_mode(node, mode)

    async def _leave(self, mode: PermissionMode) -> str:
        """Give the run the tools and the rights of `mode`. Return a text for its model."""
        new = await self._take_up(mode)
        if new is None:
            return "Approved, but this agent is read-only in every mode: end with the plan as your answer."
        record_mode(self._node, mode, "plan")
        names = ", ".join(tool.spec.name for tool in new)
        gained = f" You have got more tools: {names}." if names else ""
        return f"Approved. Plan mode is over: carry out the plan now, and check it.{gained}"

    async def _take_up(self, mode: PermissionMode) -> tuple[Tool, ...] | None:
        """Give the run the rights of `mode` after plan mode, and return its new tools; None if the run is read-only in
        every mode."""
        node, project = self._node, self._project
        launch, notes = node.launch, list[str]()
        request = replace(launch.request, permission_mode=mode)
        if is_readonly(request, mode, project.settings.settings, notes):
            return None
        plan = LaunchPlan(request, project, limits=launch.limits, mode=mode, isolation=launch.isolation)
        plan.late, plan.state = launch.late, dict(launch.state)
        await choose_tools(plan)
        new = self._new_tools(with_patches((*node.tools, *plan.tools.values()), launch.model.info.id))
        self._change(mode, new, readonly=False)
        return new

    def _new_tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Return those of the tools that the run does not have."""
        present = {tool.spec.name for tool in self._node.tools}
        return tuple({tool.spec.name: tool for tool in tools if tool.spec.name not in present}.values())

    def _change(self, mode: PermissionMode, new: tuple[Tool, ...], *, readonly: bool) -> None:
        node, project = self._node, self._project
        node.mode, node.readonly, node.tools = mode, readonly, (*node.tools, *new)
        guard = project.part(RunGuards).get(node.id)
        if guard is not None:
            guard.permissions.mode = mode
        if self._context.confine is not None:
            self._context.confine.renew()
        everything = (*self._guarded, *self.tools, *self._wrap(new))
        connect_patches(node.tools, everything)
        self.tools = with_hidden_patches(everything, self._wrap)[len(self._guarded) :]
