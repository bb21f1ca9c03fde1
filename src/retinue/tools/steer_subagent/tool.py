"""steer_subagent: a word to an agent that is at work."""

from __future__ import annotations

from typing import ClassVar

from retinue.core.delegation import Refusal
from retinue.core.tool import ToolContext, ToolOutput, failed, ok
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, Properties
from retinue.tools.delegation.base import ID_NAMES, DelegationTool, agent_id, text_property
from retinue.tools.delegation.views import refusal, shown_name, state
from retinue.tools.errors import ToolError


class SteerSubagentTool(DelegationTool):
    name = "steer_subagent"
    required = ("agent_id", "message")
    properties: ClassVar[Properties] = {
        "agent_id": text_property("Id or name"),
        "message": {"type": "string"},
    }
    aliases: ClassVar[Aliases] = {"agent_id": ID_NAMES, "message": ("prompt", "text", "content", "input")}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        message = given.text("message").strip()
        if not message:
            raise ToolError('steer_subagent: "message" is blank. Say what the agent should do.')
        view = self.delegation.steer(agent_id(given), message)
        if isinstance(view, Refusal):
            return failed(refusal(view, self.delegation.children()))
        who = f"{view.id} ({shown_name(view)})"
        if view.status in ("queued", "starting"):
            return ok(f"Message kept for agent {who}, which is {view.status}: it is delivered as soon as it works.")
        return ok(
            f"Message sent to agent {who}. It reads it as a user message after its current tool execution.\n"
            f"Current state: {state(view)}"
        )
