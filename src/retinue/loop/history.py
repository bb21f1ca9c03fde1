"""A conversation is valid when every tool call has exactly one result, in call order, in the
message right after it. These functions keep it so, whatever a model sent or a crash left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from retinue.domain.events import (
    AssistantEnded,
    Body,
    Compacted,
    MessageAdded,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
)
from retinue.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, ToolResult

UNKNOWN_EFFECT = (
    "This call was interrupted while it ran. Whether it took effect is not known: "
    "check the present state before you repeat it."
)
NOT_RUN = "This call was not run: the run was interrupted before it started."


@dataclass(frozen=True, slots=True)
class History:
    """`unknown` are the calls that had started and never reported back."""

    messages: tuple[Message, ...]
    unknown: tuple[ToolCall, ...] = ()


def rebuild(bodies: Iterable[Body]) -> History:
    """The conversation as a run's durable events tell it, wherever they break off."""
    messages: list[Message] = []
    waiting: tuple[ToolCall, ...] = ()
    started: set[str] = set()
    results: dict[str, ToolResult] = {}
    for body in bodies:
        match body:
            case MessageAdded():
                messages.append(body.message)
            case AssistantEnded():
                messages.extend(entering(body.message))
                waiting, started, results = body.message.tool_calls, set(), {}
            case ToolStarted():
                started.add(body.call.id)
            case ToolEnded():
                results[body.call_id] = body.result
            case ToolsEnded():
                messages.append(body.message)
                waiting = ()
            case Compacted():
                messages = list(body.messages)
            case _:
                pass
    if not waiting:
        return History(tuple(messages))
    answers = [results.get(call.id) or _missing(call, call.id in started) for call in waiting]
    messages.append(ToolMessage(tuple(answers)))
    return History(tuple(messages), tuple(c for c in waiting if c.id in started and c.id not in results))


def entering(message: AssistantMessage) -> tuple[AssistantMessage, ...]:
    """What of a model's message goes on in the conversation: nothing, if it said nothing."""
    return (message,) if message.content else ()


def mend(messages: Sequence[Message]) -> list[Message]:
    """Answers every call that has no result; drops results that no call asked for."""
    mended: list[Message] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        if isinstance(message, AssistantMessage):
            mended.extend(entering(message))
            if message.tool_calls:
                following = messages[index + 1] if index + 1 < len(messages) else None
                mended.append(_answers(message.tool_calls, following))
        else:
            mended.append(message)
    return mended


def used_ids(messages: Iterable[Message]) -> set[str]:
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}


def settled(message: AssistantMessage, used: set[str]) -> AssistantMessage:
    """The message as it may enter a conversation: no tool calls if it failed, no call id that
    is empty or was used before, no arguments that could not be written down again. `used`
    learns the ids of this message."""
    calls = message.tool_calls
    if not calls:
        return message
    if message.stop in ("error", "aborted", "refusal"):
        return replace(message, content=tuple(part for part in message.content if not isinstance(part, ToolCall)))
    ids = [call.id for call in calls]
    distinct = "" not in ids and len(set(ids)) == len(ids) and used.isdisjoint(ids)
    if distinct and all(_is_json(call.arguments) for call in calls):
        used.update(ids)
        return message
    content = tuple(_settled(part, used) if isinstance(part, ToolCall) else part for part in message.content)
    return replace(message, content=content)


def _settled(call: ToolCall, used: set[str]) -> ToolCall:
    renamed = _renamed(call, used)
    if _is_json(call.arguments):
        return renamed
    return replace(renamed, arguments={}, broken=call.broken or "(nested too deeply, or not text)")


def _is_json(arguments: Mapping[str, Any]) -> bool:
    try:
        orjson.dumps(arguments, default=dict)
    except TypeError:
        return False
    return True


def _renamed(call: ToolCall, used: set[str]) -> ToolCall:
    name, number = call.id or "call", 1
    while name in used or not name:
        number += 1
        name = f"{call.id or 'call'}-{number}"
    used.add(name)
    return call if name == call.id else replace(call, id=name)


def _answers(calls: Sequence[ToolCall], following: Message | None) -> ToolMessage:
    if isinstance(following, ToolMessage):
        if [result.call_id for result in following.results] == [call.id for call in calls]:
            return following
        results = {result.call_id: result for result in following.results}
        return ToolMessage(tuple(results.get(call.id) or _missing(call, True) for call in calls))
    return ToolMessage(tuple(_missing(call, True) for call in calls))


def _missing(call: ToolCall, started: bool) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(UNKNOWN_EFFECT if started else NOT_RUN),), is_error=True)
