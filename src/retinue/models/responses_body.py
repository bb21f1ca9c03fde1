"""A conversation as the input items of the Responses format."""

from __future__ import annotations

from typing import Any

import orjson

from retinue.core.messages import AssistantMessage, Content, Document, Message, Text, Thinking, ToolCall, ToolResult
from retinue.core.messages import ToolMessage as Results
from retinue.models.content import data_url, own, result_text, safe_id, sent_arguments, visible
from retinue.models.protocol import ModelInfo


def build_input(messages: tuple[Message, ...], info: ModelInfo, stale: set[str]) -> list[Any]:
    """`stale` are the reasoning items that the provider no longer accepts."""
    items: list[Any] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            items += _assistant(message, info, stale)
        elif isinstance(message, Results):
            items += [_result(result, info) for result in message.results]
        else:
            parts = visible(message.content, info)
            if parts:
                items.append({"role": "user", "content": [_part(part) for part in parts]})
    return items


def _part(part: Content) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Document):
        return {"type": "input_file", "filename": part.name, "file_data": data_url(part)}
    return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}


def _result(result: ToolResult, info: ModelInfo) -> dict[str, Any]:
    parts = visible(result.content, info)
    output: Any = [_part(part) for part in parts]
    if all(isinstance(part, Text) for part in parts):
        output = "\n".join(part.text for part in parts if isinstance(part, Text)) or result_text(result)
    return {"type": "function_call_output", "call_id": safe_id(result.call_id), "output": output}


def _assistant(message: AssistantMessage, info: ModelInfo, stale: set[str]) -> list[Any]:
    """Reasoning stands before what it led to, as it came. One that led to nothing, because its
    turn was cut off, is left out: the API refuses it."""
    items: list[Any] = []
    waiting: list[Any] = []
    same = own(message, info)
    for part in message.content:
        if isinstance(part, Thinking):
            if same and part.provider == info.provider and part.signature not in stale:
                waiting += _reasoning(part)
            continue
        if isinstance(part, ToolCall):
            item = {
                "type": "function_call",
                "call_id": safe_id(part.id),
                "name": part.name,
                "arguments": orjson.dumps(sent_arguments(part)).decode(),
            }
        elif part.text:
            item = {"role": "assistant", "content": part.text}
            if same and part.signature in ("commentary", "final_answer"):
                item["phase"] = part.signature
        else:
            continue
        items += [*waiting, item]
        waiting = []
    return items


def _reasoning(part: Thinking) -> list[Any]:
    """The reasoning item that was kept; nothing if the signature is of another format, or lacks
    what the provider needs to read it again."""
    try:
        item = orjson.loads(part.signature or "")
    except orjson.JSONDecodeError:
        return []
    whole = isinstance(item, dict) and item.get("type") == "reasoning" and item.get("encrypted_content")
    return [item] if whole else []
