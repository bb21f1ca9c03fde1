"""The whole contract between Retinue and a language model.

A model is anything with `info` and `stream`. A stream yields parts and ends with exactly one
`Finished`; failure is a `Finished` whose message has `stop == "error"` and a `failure`. Nothing
but cancellation is ever raised, so neither the loop nor a wrapper needs a try block.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import field
from typing import Any, Literal, Protocol

from retinue.core.events import Retrying, TextDelta, ThinkingDelta
from retinue.core.lean import dataclass
from retinue.core.messages import AssistantMessage, Message
from retinue.core.tool import ToolSpec


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens. `above` holds the prices of a whole request whose input,
    cached or not, exceeds that many tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    above: tuple[int, Prices] | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    provider: str
    id: str
    name: str = ""
    window: int = 128_000
    max_output: int = 8_192
    thinking: bool = False
    images: bool = True
    prices: Prices | None = None
    documents: bool = False
    """Whether PDFs are sent as such."""

    @property
    def full_name(self) -> str:
        return f"{self.provider}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request. `system` and `tools` are the stable prefix: a run never changes them
    between turns, so that provider caches hit."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int | None = None
    thinking: str | None = None
    temperature: float | None = None
    tool_choice: Literal["auto", "required", "none"] = "auto"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The model began a tool call; its arguments arrive whole in `Finished`."""

    name: str


@dataclass(frozen=True, slots=True)
class Alive:
    """Something arrived that shows nothing: a piece of a call's arguments, a ping. It keeps a
    model that writes a long file from looking idle."""


@dataclass(frozen=True, slots=True)
class Noted:
    """Something about the request that people should know and that did not stop it: a value that
    was changed, another model that answered. `code` is stable."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    message: AssistantMessage


Part = TextDelta | ThinkingDelta | ToolCallStarted | Alive | Noted | Retrying | Finished


class Model(Protocol):
    @property
    def info(self) -> ModelInfo: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]: ...

    async def close(self) -> None: ...
