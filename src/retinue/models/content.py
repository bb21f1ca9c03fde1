"""Pieces of request bodies that several wire formats build alike."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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
    UserMessage,
)
from retinue.models.protocol import ModelInfo, ModelRequest

UNSEEN = "[an image that this model cannot see]"
UNREAD = "[{name}: a PDF that this model does not take as a file. Read it again to get its text.]"
NOTHING = "(no output)"
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


_STARTERS = frozenset({"Agent", "Task", "subagent", "dispatch_agent"})


def cache_mark(messages: Sequence[Message], ttl: str | None) -> dict[str, Any]:
    """The mark for a cache. A run that has started agents waits for them, often longer than the
    five minutes after which it would have to write its whole beginning again."""
    if ttl == "1h" or (ttl is None and _has_started_agents(messages)):
        return {"type": "ephemeral", "ttl": "1h"}
    return {"type": "ephemeral"}


def _has_started_agents(messages: Sequence[Message]) -> bool:
    for message in messages:
        if isinstance(message, AssistantMessage):
            for part in message.content:
                if isinstance(part, ToolCall) and part.name in _STARTERS:
                    return True
    return False


def own(message: AssistantMessage, info: ModelInfo) -> bool:
    """Whether the provider asked now wrote this message: only then may its signatures return."""
    return message.model.partition("/")[0] == info.provider


def sent_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as they go back: an object always, so that a broken call does not break
    every later request. What the model wrote stays readable for it."""
    if call.broken is not None:
        return {"INVALID_JSON": call.broken[:4000]}
    return dict(call.arguments)


def safe_id(id: str) -> str:
    """A call id that every provider accepts; the same id always gives the same one."""
    if id and len(id) <= 64 and _SAFE.issuperset(id):
        return id
    return "call_" + hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:32]


def short_id(id: str, length: int) -> str:
    """A call id of exactly so many letters and digits, as Mistral's template wants it."""
    if len(id) == length and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:length]


def visible(parts: Sequence[Content], info: ModelInfo) -> list[Content]:
    """The parts a model can take: no empty text, and words in place of images it cannot see and
    of documents it cannot read."""
    kept: list[Content] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                kept.append(part)
        elif isinstance(part, Image):
            kept.append(part if info.images else Text(UNSEEN))
        else:
            kept.append(part if info.documents else Text(UNREAD.format(name=part.name)))
    return kept


def has_documents(request: ModelRequest) -> bool:
    for message in request.messages:
        if isinstance(message, UserMessage) and any(isinstance(part, Document) for part in message.content):
            return True
        if isinstance(message, ToolMessage):
            contents = (result.content for result in message.results)
            if any(isinstance(part, Document) for content in contents for part in content):
                return True
    return False


def result_text(result: ToolResult) -> str:
    return result.text or NOTHING


def data_url(part: Image | Document) -> str:
    return f"data:{part.media_type};base64,{part.data}"
