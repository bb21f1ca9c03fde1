"""exit_plan: the plan as the answer of a run in plan mode. What comes next is the person's choice."""

from __future__ import annotations

from typing import ClassVar

from retinue.domain.lean import replace
from retinue.domain.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, BuiltinTool, Properties


class ExitPlanTool(BuiltinTool):
    name = "exit_plan"
    required = ("plan",)
    exclusive = True
    properties: ClassVar[Properties] = {"plan": {"type": "string", "description": "The whole plan, in Markdown"}}
    aliases: ClassVar[Aliases] = {"plan": ("content", "text", "summary")}

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, ends_run=True)

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        plan = given.text("plan").strip()
        return ok(f"{plan}\n\nShall I carry it out? Plan mode changes nothing: allow it by choosing another mode.")
