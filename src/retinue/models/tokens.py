"""How full the model's window is: what the provider counted, plus an estimate of what came since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
)
from retinue.core.tool import ToolSpec

_CHARACTERS_PER_TOKEN = 4
_IMAGE_TOKENS = 1_500
_PAGE_TOKENS = 3_000
_PER_MESSAGE = 4


def estimate(messages: Iterable[Message]) -> int:
    """Tokens of `messages` at four characters each; images at a flat rate."""
    return sum(_size(message) for message in messages)


def overhead(system: str, tools: Sequence[ToolSpec]) -> int:
    """Tokens of the prefix that every request carries."""
    characters = len(system) + sum(len(t.name) + len(t.description) + _json_length(t.parameters) for t in tools)
    return characters // _CHARACTERS_PER_TOKEN


def _size(message: Message) -> int:
    if isinstance(message, ToolMessage):
        return sum(_content(result.content) + _PER_MESSAGE for result in message.results)
    return _content(message.content) + _PER_MESSAGE


def _content(content: Sequence[Content | Thinking | ToolCall]) -> int:
    tokens = characters = 0
    for part in content:
        match part:
            case Text():
                characters += len(part.text)
            case Image():
                tokens += _IMAGE_TOKENS
            case Document():
                tokens += _document(part)
            case Thinking():
                characters += len(part.text) + len(part.signature or "") + len(part.redacted or "")
            case ToolCall():
                characters += len(part.name) + _json_length(part.arguments) + len(part.broken or "")
    return tokens + characters // _CHARACTERS_PER_TOKEN


def _document(part: Document) -> int:
    """Pages cost their text and an image each (platform.claude.com "PDF support": 1,500 to 3,000
    tokens of text a page). Where the file hides their number, its size has to tell."""
    pages = part.pages or min(max(len(part.data) // 40_000, 1), 100)
    return pages * _PAGE_TOKENS


def _json_length(value: Mapping[str, Any]) -> int:
    return len(orjson.dumps(value, default=dict))


class MeasuredConversation:
    """The messages of a run and how much of the window they take."""

    def __init__(self, prefix: int, messages: Sequence[Message], estimated: int | None = None) -> None:
        """`estimated` is the estimate of `messages`, where it is known."""
        if estimated is None:
            estimated = estimate(messages)
        self._prefix = prefix
        self.messages: list[Message] = list(messages)
        self._counted = 0
        self._estimated = prefix + estimated

    @property
    def tokens(self) -> int:
        return self._counted + self._estimated

    def scale(self, estimated: int) -> float:
        """Return how many real tokens an estimated one is, for predicting what a cut will save. `estimated` is the
        estimate of all messages."""
        guess = self._prefix + estimated
        return min(max(self.tokens / max(guess, 1), 0.5), 4.0)

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self._estimated += _size(message)

    def answered(self, message: AssistantMessage) -> None:
        """Add the model's message; its usage tells exactly what the request occupied."""
        if message.content:
            self.messages.append(message)
        usage = message.usage
        if usage.input + usage.cache_read + usage.cache_write > 0:
            self._counted, self._estimated = usage.context_tokens, 0
        elif message.content:
            self._estimated += _size(message)

    def replace(self, messages: Sequence[Message], tokens: int) -> None:
        self.messages = list(messages)
        self._counted, self._estimated = tokens, 0
