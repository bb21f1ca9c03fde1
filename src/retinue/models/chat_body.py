"""A conversation as Chat Completions messages."""

from __future__ import annotations

from typing import Any

import orjson

from retinue.domain.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolMessage, UserMessage
from retinue.models.content import data_url, own, result_text, safe_id, sent_arguments, visible
from retinue.models.protocol import ModelInfo, ModelRequest


def build_messages(request: ModelRequest, info: ModelInfo, role: str, field: str | None) -> list[dict[str, Any]]:
    """`role` is what the system prompt is called, `field` where thinking is sent back."""
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": role, "content": request.system})
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            messages += _assistant(message, info, field)
        elif isinstance(message, ToolMessage):
            messages += _results(message, info)
        else:
            messages += _user(message, info)
    return messages


def _user(message: UserMessage, info: ModelInfo) -> list[dict[str, Any]]:
    parts = visible(message.content, info)
    if not parts:
        return []
    if all(isinstance(part, Text) for part in parts):
        return [{"role": "user", "content": "\n".join(part.text for part in parts if isinstance(part, Text))}]
    return [{"role": "user", "content": [_part(part) for part in parts]}]


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": data_url(part)}}


def _results(message: ToolMessage, info: ModelInfo) -> list[dict[str, Any]]:
    """One message per result. A result may hold text only: images follow as the user's, after
    the last result, because nothing may stand between the results of one turn."""
    messages: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for result in message.results:
        parts = visible(result.content, info)
        text = "\n".join(part.text for part in parts if isinstance(part, Text))
        pictures = [part for part in parts if isinstance(part, Image)]
        if pictures:
            images.append({"type": "text", "text": f"Images from the tool {result.name}:"})
            images += [_part(picture) for picture in pictures]
            text = text or "(see the images below)"
        messages.append(
            {"role": "tool", "tool_call_id": safe_id(result.call_id), "content": text or result_text(result)}
        )
    if images:
        messages.append({"role": "user", "content": images})
    return messages


def _assistant(message: AssistantMessage, info: ModelInfo, field: str | None) -> list[dict[str, Any]]:
    text = "\n".join(part.text for part in message.content if isinstance(part, Text) and part.text)
    turn: dict[str, Any] = {"role": "assistant", "content": text or None}
    same = own(message, info)
    if message.tool_calls:
        turn["tool_calls"] = [_call(call, same) for call in message.tool_calls]
    elif not text:
        return []
    if field and same:
        _return_thinking(turn, message, field)
    return [turn]


def _call(call: ToolCall, same: bool) -> dict[str, Any]:
    arguments = orjson.dumps(sent_arguments(call)).decode()
    sent = {"id": safe_id(call.id), "type": "function", "function": {"name": call.name, "arguments": arguments}}
    if call.signature and same:
        sent["extra_content"] = {"google": {"thought_signature": call.signature}}
    return sent


def _return_thinking(turn: dict[str, Any], message: AssistantMessage, field: str) -> None:
    thoughts = [part for part in message.content if isinstance(part, Thinking)]
    if field == "reasoning_details":
        if details := _details(thoughts):
            turn[field] = details
    elif text := "".join(part.text for part in thoughts):
        turn[field] = text


def _details(thoughts: list[Thinking]) -> list[Any]:
    """What the last thinking part kept (it grew with the stream and holds all); nothing if its
    signature is of another format."""
    try:
        details = orjson.loads(next(part.signature for part in reversed(thoughts) if part.signature))
    except (StopIteration, orjson.JSONDecodeError):
        return []
    return details if isinstance(details, list) else []
