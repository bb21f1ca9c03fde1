"""The conversation of a run.

Every class carries a literal `type`, so that `orjson.dumps` writes it self-describing and
`retinue.core.codec` can read it back. Content is always a tuple: messages are values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from retinue.core.lean import dataclass
from retinue.core.outcome import Failure
from retinue.core.usage import Usage

StopReason = Literal["end", "tool_use", "length", "refusal", "error", "aborted"]
Origin = Literal["task", "steer", "follow-up", "wrap-up", "correction", "summary", "notification", "context"]


@dataclass(frozen=True, slots=True)
class Text:
    """`signature` is provider data that came with the text and goes back with it, unchanged
    (Gemini's thought signature, the phase of an OpenAI message); None for everyone else."""

    text: str
    signature: str | None = None
    type: Literal["text"] = field(default="text", init=False)


@dataclass(frozen=True, slots=True)
class Image:
    """`data` is base64 text, as every wire format wants it."""

    media_type: str
    data: str
    type: Literal["image"] = field(default="image", init=False)


@dataclass(frozen=True, slots=True)
class Document:
    """A PDF, for models that read such files themselves. `data` is base64 text, `name` the file's
    name; `pages` is 0 where the file does not tell."""

    media_type: str
    data: str
    name: str
    pages: int = 0
    type: Literal["document"] = field(default="document", init=False)


Content = Text | Image | Document
"""The content of messages from people and tools."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A reasoning block. `signature` (or `redacted` data) goes back to the provider intact,
    and only to the provider that made it."""

    text: str
    signature: str | None = None
    redacted: str | None = None
    provider: str = ""
    type: Literal["thinking"] = field(default="thinking", init=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`broken` holds the raw text when the arguments were not a JSON object; such a call is
    never run, the model is told instead. `signature` is provider data that must be returned."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    broken: str | None = None
    signature: str | None = None
    type: Literal["tool_call"] = field(default="tool_call", init=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    name: str
    content: tuple[Content, ...]
    is_error: bool = False
    type: Literal["tool_result"] = field(default="tool_result", init=False)

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class UserMessage:
    """`origin` says who spoke: compaction keeps the task, replays skip nothing else by it."""

    content: tuple[Content, ...]
    origin: Origin = "task"
    type: Literal["user"] = field(default="user", init=False)

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    content: tuple[Text | Thinking | ToolCall, ...]
    stop: StopReason = "end"
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    failure: Failure | None = None
    type: Literal["assistant"] = field(default="assistant", init=False)

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The results of one assistant message, complete and in call order."""

    results: tuple[ToolResult, ...]
    type: Literal["tool"] = field(default="tool", init=False)


Message = UserMessage | AssistantMessage | ToolMessage


def user(text: str, origin: Origin = "task") -> UserMessage:
    return UserMessage((Text(text),), origin)
