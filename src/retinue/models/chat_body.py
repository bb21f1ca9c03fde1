"""A conversation as Chat Completions messages."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.models.content import data_url, own, result_text, safe_id, sent_arguments, short_id, visible
from retinue.models.protocol import ModelInfo, ModelRequest


class ChatShape(NamedTuple):
    """How one server wants a conversation. `role` is what the system prompt is called, `field`
    where thinking is sent back; the rest is described in `Quirks`."""

    role: str = "system"
    field: str | None = None
    field_required: bool = False
    assistant_after_tools: bool = False
    call_id_length: int = 0
    documents: str | None = None

    def call_id(self, id: str) -> str:
        return short_id(id, self.call_id_length) if self.call_id_length else safe_id(id)


def build_messages(request: ModelRequest, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": shape.role, "content": request.system})
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            messages += _assistant(message, info, shape)
        elif isinstance(message, ToolMessage):
            messages += _results(message, info, shape)
        else:
            messages += _user(message, info, shape)
    return _with_turns_between(messages) if shape.assistant_after_tools else messages


def _with_turns_between(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mistral refuses a user's words right after a tool's result: "Unexpected role 'user' after
    role 'tool'" (code 3230). A short turn of the assistant between them is what its own SDK's
    users put there (pydantic-ai models/mistral.py)."""
    separated: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and separated and separated[-1]["role"] == "tool":
            separated.append({"role": "assistant", "content": "OK"})
        separated.append(message)
    return separated


def mark_for_cache(body: dict[str, Any], mark: dict[str, Any], *, all_turns: bool) -> None:
    """Puts cache marks where Anthropic's own format has them: on the last tool, the system prompt
    and, with `all_turns`, the newest two turns of the user or the tools."""
    if body.get("tools"):
        body["tools"][-1]["cache_control"] = mark
    messages = body["messages"]
    if messages and messages[0]["role"] in ("system", "developer"):
        _mark(messages[0], mark)
    if all_turns:
        for message in [each for each in messages if each["role"] in ("user", "tool")][-2:]:
            _mark(message, mark)


def _mark(message: dict[str, Any], mark: dict[str, Any]) -> None:
    if isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    message["content"][-1]["cache_control"] = mark


def _user(message: UserMessage, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    parts = visible(message.content, info)
    if not parts:
        return []
    if all(isinstance(part, Text) for part in parts):
        return [{"role": "user", "content": "\n".join(part.text for part in parts if isinstance(part, Text))}]
    return [{"role": "user", "content": [_part(part, shape) for part in parts]}]


def _part(part: Content, shape: ChatShape) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Document):
        if shape.documents == "document_url":
            return {"type": "document_url", "document_url": data_url(part), "document_name": part.name}
        return {"type": "file", "file": {"filename": part.name, "file_data": data_url(part)}}
    return {"type": "image_url", "image_url": {"url": data_url(part)}}


def _results(message: ToolMessage, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    """One message per result. A result may hold text only: images and documents follow as the
    user's, after the last result, because nothing may stand between the results of one turn."""
    messages: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for result in message.results:
        parts = visible(result.content, info)
        text = "\n".join(part.text for part in parts if isinstance(part, Text))
        files = [part for part in parts if isinstance(part, (Image, Document))]
        if files:
            kind = "Documents" if isinstance(files[0], Document) else "Images"
            after.append({"type": "text", "text": f"{kind} from the tool {result.name}:"})
            after += [_part(file, shape) for file in files]
            text = text or f"(see the {kind.lower()} below)"
        messages.append(
            {"role": "tool", "tool_call_id": shape.call_id(result.call_id), "content": text or result_text(result)}
        )
    if after:
        messages.append({"role": "user", "content": after})
    return messages


def _assistant(message: AssistantMessage, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    text = "\n".join(part.text for part in message.content if isinstance(part, Text) and part.text)
    turn: dict[str, Any] = {"role": "assistant", "content": text or None}
    same = own(message, info)
    if message.tool_calls:
        turn["tool_calls"] = [_call(call, same, shape) for call in message.tool_calls]
    elif not text:
        return []
    if shape.field and same:
        _return_thinking(turn, message, shape.field)
    if shape.field and shape.field_required and message.tool_calls:
        # DeepSeek and Kimi refuse a turn with calls that lacks the field, whoever wrote it.
        turn.setdefault(shape.field, "")
    return [turn]


def _call(call: ToolCall, same: bool, shape: ChatShape) -> dict[str, Any]:
    arguments = orjson.dumps(sent_arguments(call)).decode()
    sent = {"id": shape.call_id(call.id), "type": "function", "function": {"name": call.name, "arguments": arguments}}
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
