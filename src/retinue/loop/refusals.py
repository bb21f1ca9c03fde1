"""What a model is told about a call that was not run, or not to its end. Each says how to go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retinue.core.messages import StopReason, ToolCall
from retinue.core.tool import ToolSpec
from retinue.core.toolnames import canonical
from retinue.loop.arguments import problem

LIMIT = "Not run: this run has used all its tool calls. Give your final answer from what you know."
TURNS = "Not run: this run has used all its turns. Give your final answer now, as text, from what you know."
AFTER_ANSWER = "Not run: the result had already been handed in."
NOT_RUN = "Not run: the run was stopped before this call started."
STOPPED = "Stopped while running: whether it took effect is not known. Check before you repeat it."
CANCELLED = "The tool cancelled itself; whether it took effect is not known. Check before you repeat it."

_SHOWN = 200
_NAMED = 60


def reason(
    call: ToolCall, stop: StopReason, tools: Mapping[str, ToolSpec], absent: Callable[[str], str] = lambda name: ""
) -> str | None:
    """Why `call` cannot be run, or None. `absent` says why a run has not got a tool."""
    spec = tools.get(call.name)
    if spec is None:
        return _unknown(call.name, tools, absent)
    if call.broken is not None:
        return _broken(call, stop)
    for name, why in spec.unavailable.items():
        if name in call.arguments:
            return f"Not run: {call.name} has no {name} here: {why}. Call it again without {name}."
    schema = spec.parameters if spec.spellings is None else spec.spellings.schema
    wrong = problem(call.arguments, schema)
    if wrong is not None:
        return f"Not run: the arguments do not fit {call.name}: {wrong}. Correct them and call it again."
    return None


def _unknown(name: str, tools: Mapping[str, ToolSpec], absent: Callable[[str], str]) -> str:
    offered = ", ".join([*tools][:_NAMED]) or "none"
    if len(tools) > _NAMED:
        offered += f" and {len(tools) - _NAMED} more"
    meant = canonical(name)
    several = [each for each in meant if each in tools]
    if several:
        return f"Not run: {name[:_SHOWN]!r} could be any of {', '.join(several)}. Call the one you mean."
    if meant:
        why = absent(meant[0]) or "your definition does not give it to you."
        return f"Not run: {meant[0]} is not among your tools: {why} The tools you have: {offered}."
    return f"There is no tool named {name[:_SHOWN]!r}. The tools you have: {offered}."


def timed_out(seconds: float) -> str:
    return (
        f"Stopped after {seconds:g} seconds, the longest one call may take; whether it took effect is not known. "
        "Try a smaller step, or one that does not wait."
    )


def defect(name: str, why: str) -> str:
    return f"The tool {name} failed inside, through no fault of yours ({why}). Try another way."


def _broken(call: ToolCall, stop: StopReason) -> str:
    if stop == "length":
        return (
            "Not run: your answer was cut off at the output limit in the middle of this call. "
            "Do it again in smaller pieces, with less text per call."
        )
    said = call.broken or ""
    shown = said if len(said) <= _SHOWN else said[:_SHOWN] + "…"
    return f"Not run: the arguments are not a JSON object: {shown!r}. Call {call.name} again with valid JSON."
