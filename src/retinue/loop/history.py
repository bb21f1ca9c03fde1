"""Messages on their way into a conversation, whatever a model sent.

A conversation is valid when every tool call has exactly one result, in call order, in the
message right after it, and no two calls share an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from retinue.core.messages import AssistantMessage, Message, ToolCall
from retinue.log.replay import closed


def mend(messages: Sequence[Message]) -> list[Message]:
    """A history that a model accepts: every call answered, no message of the model empty."""
    return closed(m for m in messages if not isinstance(m, AssistantMessage) or m.content)


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
