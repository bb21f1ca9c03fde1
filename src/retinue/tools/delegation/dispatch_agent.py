"""dispatch_agent: one agent, one prompt, in the foreground, as CodingCode calls it."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from retinue.core.delegation import ChildView, Delegation, Refusal, SpawnCall
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.errors import DisabledAgentError, SpawnDeniedError
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import Aliases, Properties
from retinue.tools.delegation.base import DelegationTool, bounded, make_spec, shipped_prompt, text_property
from retinue.tools.delegation.describe import Wording, fill
from retinue.tools.delegation.frame import as_data, one_line
from retinue.tools.delegation.views import error_text, notes, partial_text, status_note, succeeded

_NOTHING = "(subagent completed without output)"
_SWITCHED_OFF = "Subagent dispatch is disabled in global settings"


class DispatchAgentTool(DelegationTool):
    name = "dispatch_agent"
    required = ("agent", "prompt")
    properties: ClassVar[Properties] = {
        "agent": text_property("Name of the agent"),
        "prompt": text_property("The whole task", minLength=1),
    }
    aliases: ClassVar[Aliases] = {
        "agent": ("profile", "subagent_type", "agent_type", "subagent", "name"),
        "prompt": ("task", "message", "instructions"),
    }
    ignored = frozenset({"description"})

    def __init__(self, delegation: Delegation, wording: Wording | None = None, *, enabled: bool = True) -> None:
        super().__init__(delegation, spec=dispatch_spec(wording or Wording()))
        self.enabled = enabled

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        if not self.enabled:
            return failed(_SWITCHED_OFF)
        agent, prompt = given.text("agent").strip(), given.text("prompt").strip()
        if not prompt:
            raise ToolError('dispatch_agent: "prompt" is blank. Say what the agent should do.')
        found = await self.delegation.spawn(
            SpawnCall(
                prompt=prompt,
                description=one_line(prompt, 60),
                agent=agent,
                background=False,
                call_id=call_id,
                vocabulary="codingcode",
            )
        )
        if isinstance(found, Refusal):
            return failed(_refused(found, agent))
        if found.live:
            return ok(f"The subagent goes on in the background as {found.id}. You will be notified when it ends.")
        self.delegation.consume(found.id)
        return await _ended(found, context)


@lru_cache(maxsize=128)
def dispatch_spec(wording: Wording) -> ToolSpec:
    return make_spec(DispatchAgentTool, fill(shipped_prompt(DispatchAgentTool), wording), DispatchAgentTool.properties)


def _refused(refusal: Refusal, agent: str) -> str:
    name = one_line(agent, 128)
    match refusal.code:
        case "UNKNOWN_AGENT":
            start = f"Unknown subagent: {name}"
        case DisabledAgentError.code | "SUBAGENT_DISABLED":
            start = f"Subagent '{name}' is disabled"
        case "SUBAGENTS_DISABLED":
            return _SWITCHED_OFF
        case SpawnDeniedError.code:
            return _led("Subagent spawn denied: ", refusal.message)
        case _:
            return _led("Subagent failed: ", refusal.message)
    return refusal.message if refusal.message.startswith(start) else f"{start}. {refusal.message}"


def _led(start: str, message: str) -> str:
    return message if message.startswith(start) else start + message


async def _ended(view: ChildView, context: ToolContext) -> ToolOutput:
    said = notes(view.notes)
    if not succeeded(view):
        lines = [f"Subagent failed: {error_text(view)}", *said]
        partial = partial_text(view)
        if partial:
            lines += ["Partial output:", await _shown(partial, view, context)]
        return failed("\n".join(lines))
    note = status_note(view)
    if note:
        said.append(f"Note: {note}.")
    shown = await _shown(view.text, view, context) if view.text.strip() else _NOTHING
    return ok("\n".join([*said, "", shown] if said else [shown]))


async def _shown(text: str, view: ChildView, context: ToolContext) -> str:
    return (await bounded(text, view.id, context, frame=as_data)).text
