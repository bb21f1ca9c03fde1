"""subagent and dispatch_agent: the foreground tools of devkit-pi and CodingCode for one agent and one task.

The text of `subagent` is the agent's report. The details object with its eight error codes is the output's `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import ClassVar, cast, get_args

from msgspec import to_builtins
from msgspec.structs import replace

from retinue.core.delegation import Delegation, Refusal, SpawnCall, Vocabulary
from retinue.core.messages import Text
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import IN_BACKGROUND, ToolEffect
from retinue.core.run_state import ActiveRun
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.errors import DisabledAgentError, SpawnDeniedError
from retinue.loop.result import (
    DisplayItem,
    ErrorCode,
    ResultDetails,
    ResultDocument,
    ResultText,
    refused,
    result_document,
)
from retinue.tools.base import Aliases, Arguments, Properties, ToolError
from retinue.tools.delegation.base import DelegationTool, Items, bound_text, make_spec, shipped_prompt, text_property
from retinue.tools.delegation.describe import Wording, fill
from retinue.tools.delegation.frame import as_data, one_line
from retinue.tools.delegation.views import error_text, notes, partial_text, status_note

_CODES: frozenset[str] = frozenset(get_args(ErrorCode))
_OTHER_CODES: Mapping[str, ErrorCode] = {
    "AGENT_DISABLED": "SUBAGENT_DISABLED",
    "DEPTH_EXCEEDED": "SUBAGENT_DEPTH_EXCEEDED",
    "USAGE": "INVALID_INPUT",
}


def _foreground_call(agent: str, task: str, call_id: str, vocabulary: Vocabulary) -> SpawnCall:
    description = one_line(task, 60)
    return SpawnCall(
        prompt=task, description=description, agent=agent, background=False, call_id=call_id, vocabulary=vocabulary
    )


def _no_items(run_id: str) -> tuple[DisplayItem, ...]:
    return ()


class SubagentTool(DelegationTool):
    """The subagent tool of devkit-pi. It checks the depth, the switch, the agent and the task in devkit-pi's order,
    before the supervisor's checks."""

    name = "subagent"
    required = ("agent", "task")
    asked_for = ()
    """Empty, so that the loop does not check them: this tool answers an incomplete call with its error code."""
    properties: ClassVar[Properties] = {
        "agent": {"type": "string", "minLength": 1, "description": "Name of the agent"},
        "task": {"type": "string", "minLength": 1, "description": "The whole task"},
    }
    aliases: ClassVar[Aliases] = {
        "agent": ("subagent_type", "agent_type", "subagent", "name"),
        "task": ("prompt", "message", "instructions"),
    }
    ignored = frozenset({"description"})

    def __init__(
        self,
        delegation: Delegation,
        wording: Wording | None = None,
        *,
        enabled: bool = True,
        sanitise: Callable[[str], str] = str,
        items: Items | None = None,
    ) -> None:
        self.wording = wording or Wording()
        super().__init__(delegation, spec=subagent_spec(self.wording))
        self.enabled = enabled
        self.sanitise = sanitise
        self.items = items or _no_items

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        refusal = self._refusal()
        if refusal is not None:
            return _output(refusal)
        agent, task = _trimmed(arguments, "agent"), _trimmed(arguments, "task")
        for name, value in (("agent", agent), ("task", task)):
            if not value:
                return _output(refused("INVALID_INPUT", f'"{name}" is missing: send the agent\'s name and its task.'))
        child = await self.delegation.spawn(_foreground_call(agent, task, call_id, "devkit"))
        if isinstance(child, Refusal):
            return _output(self._refused(child))
        if child.live:
            return replace(_output(_detached(child)), effect=IN_BACKGROUND)
        self.delegation.consume(child.id, call_id)
        return _output(self._result(child, task))

    def _refusal(self) -> ResultDocument | None:
        if self.wording.depth >= self.wording.max_depth:
            depth = f"{self.wording.depth} of {self.wording.max_depth}"
            text = f"Agents may not be nested deeper: this run is at depth {depth}. Do the task yourself."
            return refused("SUBAGENT_DEPTH_EXCEEDED", text, mode="management")
        if not self.enabled:
            return refused("SUBAGENTS_DISABLED", "Subagents are switched off in the settings. Do the task yourself.")
        return None

    def _refused(self, refusal: Refusal) -> ResultDocument:
        code: str = refusal.code
        if code not in _CODES:
            code = _OTHER_CODES.get(code, "SUBAGENT_FAILED")
        message = refusal.message
        names = [line.name for line in self.wording.types]
        if code == "UNKNOWN_AGENT" and not any(name in message for name in names):
            message = f"{message} Available agents: {', '.join(names) or 'none'}."
        return refused(cast(ErrorCode, code), message)

    def _result(self, child: ActiveRun, task: str) -> ResultDocument:
        return result_document(
            child.outcome or _outcome_of_interrupted(child),
            agent=child.agent,
            task=task,
            run_id=child.id,
            session_file=child.transcript,
            display_items=self.items(child.id),
            sanitise=lambda text: as_data(self.sanitise(text)),
        )


@lru_cache(maxsize=128)
def subagent_spec(wording: Wording) -> ToolSpec:
    return make_spec(SubagentTool, fill(shipped_prompt(SubagentTool), wording), SubagentTool.properties)


def _outcome_of_interrupted(child: ActiveRun) -> Outcome:
    return Outcome(
        "error",
        child.result,
        partial=bool(child.result),
        failure=Failure("internal", child.failure_text),
        usage=child.usage,
        turns=child.turns,
        tool_uses=child.tool_uses,
        compactions=child.compactions,
        duration_ms=child.duration_ms,
        notes=child.notes,
    )


def _detached(child: ActiveRun) -> ResultDocument:
    """A person moved the run to the background: there is no result yet."""
    text = f"The agent goes on in the background as {child.id}. You will be notified when it ends."
    return ResultDocument((ResultText(text),), ResultDetails(run_id=child.id))


def _output(result: ResultDocument) -> ToolOutput:
    code = result.details.error.code if result.details.error else None
    is_error = code not in (None, "SUBAGENT_OUTPUT_TRUNCATED")
    text = "\n".join(block.text for block in result.content)
    effect = ToolEffect("finished", code=code)
    if is_error:
        effect = ToolEffect("failed", code=code)
    return ToolOutput((Text(text),), is_error, effect, to_builtins(result.details, enc_hook=str))


def _trimmed(arguments: Arguments, name: str) -> str:
    return (arguments.optional_text(name) or "").strip()


_NO_OUTPUT = "(subagent completed without output)"
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

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if not self.enabled:
            return failed(_SWITCHED_OFF)
        agent, prompt = arguments.text("agent").strip(), arguments.text("prompt").strip()
        if not prompt:
            raise ToolError('dispatch_agent: "prompt" is blank. Say what the agent should do.')
        child = await self.delegation.spawn(_foreground_call(agent, prompt, call_id, "codingcode"))
        if isinstance(child, Refusal):
            return failed(_dispatch_refused(child, agent))
        if child.live:
            text = f"The subagent goes on in the background as {child.id}. You will be notified when it ends."
            return ok(text, IN_BACKGROUND)
        self.delegation.consume(child.id, call_id)
        return await _ended(child, context)


@lru_cache(maxsize=128)
def dispatch_spec(wording: Wording) -> ToolSpec:
    return make_spec(DispatchAgentTool, fill(shipped_prompt(DispatchAgentTool), wording), DispatchAgentTool.properties)


def _dispatch_refused(refusal: Refusal, agent: str) -> str:
    name = one_line(agent, 128)
    match refusal.code:
        case "UNKNOWN_AGENT":
            start = f"Unknown subagent: {name}"
        case DisabledAgentError.code | "SUBAGENT_DISABLED":
            start = f"Subagent '{name}' is disabled"
        case "SUBAGENTS_DISABLED":
            return _SWITCHED_OFF
        case SpawnDeniedError.code:
            return _with_start("Subagent spawn denied: ", refusal.message)
        case _:
            return _with_start("Subagent failed: ", refusal.message)
    return refusal.message if refusal.message.startswith(start) else f"{start}. {refusal.message}"


def _with_start(start: str, message: str) -> str:
    if message.startswith(start):
        return message
    return start + message


async def _ended(child: ActiveRun, context: ToolContext) -> ToolOutput:
    notices = notes(child.notes)
    if not child.succeeded:
        lines = [f"Subagent failed: {error_text(child)}", *notices]
        partial = partial_text(child)
        if partial:
            lines += ["Partial output:", await _shown(partial, child, context)]
        return failed("\n".join(lines))
    note = status_note(child)
    if note:
        notices.append(f"Note: {note}.")
    if notices:
        notices.append("")
    shown = _NO_OUTPUT
    if child.result.strip():
        shown = await _shown(child.result, child, context)
    return ok("\n".join([*notices, shown]))


async def _shown(text: str, child: ActiveRun, context: ToolContext) -> str:
    return (await bound_text(text, child.id, context, frame=as_data)).text
