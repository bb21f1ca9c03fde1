"""exit_plan: the plan of a run in plan mode, for a person to approve."""

from __future__ import annotations

from typing import ClassVar

from retinue.core.lean import replace
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import Aliases, BuiltinTool, Properties

_UNASKED = "Nobody has answered, and plan mode goes on. End your turn with the plan as your answer."


class ExitPlanTool(BuiltinTool):
    """Asks the person; after a yes the run goes on in another mode."""

    name = "exit_plan"
    required = ("plan",)
    exclusive = True
    properties: ClassVar[Properties] = {"plan": {"type": "string", "description": "The whole plan, in Markdown"}}
    aliases: ClassVar[Aliases] = {"plan": ("content", "text", "summary")}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        plan = _plan(given)
        if context.companion is None:
            raise ToolError("exit_plan is not available here. End your turn with the plan as your answer.")
        reply = await context.companion.hand_in(plan, call_id)
        if reply.kind == "nobody":
            return ok(_UNASKED)
        if reply.text.startswith("Approved."):
            context.confinement = None  # the walls of a read-only run were those of plan mode
        return ok(f"{reply.text} ({reply.by})" if reply.by else reply.text)


class FinalPlanTool(ExitPlanTool):
    """Without anyone to ask, the plan is the answer of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, ends_run=True)

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        return ok(
            f"{_plan(given)}\n\nNothing was changed: this was plan mode, and nobody is here to approve the plan. "
            "To have it carried out, give it as the task of a run in another permission mode."
        )


def _plan(given: Arguments) -> str:
    plan = given.text("plan").strip()
    if not plan:
        raise ToolError("exit_plan: the plan is empty.")
    return plan
