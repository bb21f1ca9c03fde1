"""A conversation as the contents of a Gemini request."""

from __future__ import annotations

from typing import Any

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Image,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from retinue.models.content import NOTHING, own, sent_arguments, visible
from retinue.models.draft import FRESH
from retinue.models.protocol import ModelInfo
from retinue.models.thinking import version_of

SKIP_CHECK = "skip_thought_signature_validator"
"""What Google says to put where a signature is required and none exists: on calls that another
model made."""


def build_contents(messages: tuple[Message, ...], info: ModelInfo, stale: set[str]) -> list[dict[str, Any]]:
    """Alternating turns; the results of one turn stand together, in call order."""
    contents: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            role, parts = "model", _assistant(message, info, stale)
        elif isinstance(message, ToolMessage):
            role, parts = "user", _results(message, info)
        else:
            role, parts = "user", [_part(part) for part in visible(message.content, info)]
        if not parts:
            continue
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    return contents


def signs_calls(info: ModelInfo) -> bool:
    """Gemini 3 and later require a signature on the first call of a turn."""
    return (version_of(info.id, "gemini") or (0, 0)) >= (3, 0)


def _part(part: Content) -> dict[str, Any]:
    return {"text": part.text} if isinstance(part, Text) else {"inlineData": _blob(part)}


def _blob(part: Image | Document) -> dict[str, Any]:
    return {"mimeType": part.media_type, "data": part.data}


def _files(result: ToolResult, info: ModelInfo) -> list[dict[str, Any]]:
    """The images and documents of a result."""
    parts = visible(result.content, info)
    return [{"inlineData": _blob(part)} for part in parts if isinstance(part, (Image, Document))]


def _assistant(message: AssistantMessage, info: ModelInfo, stale: set[str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    same = own(message, info)
    first_call = True
    for part in message.content:
        sent: dict[str, Any]
        if isinstance(part, ToolCall):
            sent = {"functionCall": {"name": part.name, "args": sent_arguments(part), **_id(part.id)}}
        elif isinstance(part, Text) and (part.text or (same and part.signature)):
            sent = {"text": part.text}
        else:
            continue
        if part.signature and same and part.signature not in stale:
            sent["thoughtSignature"] = part.signature
        elif isinstance(part, ToolCall) and first_call and signs_calls(info):
            sent["thoughtSignature"] = SKIP_CHECK
        first_call = first_call and not isinstance(part, ToolCall)
        parts.append(sent)
    return parts


def _results(message: ToolMessage, info: ModelInfo) -> list[dict[str, Any]]:
    parts = [_result(result, info) for result in message.results]
    if not signs_calls(info):
        # Before Gemini 3 a function cannot return files: they stand beside the results.
        for result in message.results:
            parts += _files(result, info)
    return parts


def _result(result: ToolResult, info: ModelInfo) -> dict[str, Any]:
    text = "\n".join(part.text for part in visible(result.content, info) if isinstance(part, Text)) or NOTHING
    response: dict[str, Any] = {
        "name": result.name,
        "response": {"error" if result.is_error else "output": text},
        **_id(result.call_id),
    }
    files = _files(result, info)
    if files and signs_calls(info):
        response["parts"] = files
    return {"functionResponse": response}


def _id(id: str) -> dict[str, str]:
    """Only ids that Gemini gave: one we made would be unknown to it."""
    return {} if id.startswith(FRESH) else {"id": id}
