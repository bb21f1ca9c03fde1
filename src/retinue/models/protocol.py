"""The contract between Retinue and a language model.

A model is anything with `info` and `stream`. A stream yields parts and ends with exactly one `Finished`; failure is a
`Finished` whose message has `stop == "error"` and a `failure`. Only cancellation is ever raised, so neither the loop
nor a wrapper needs a try block.

The functions at the end price a request, build pieces of request bodies that several wire formats share, and estimate
how full the model's window is: the provider's count, plus an estimate of what was added since.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.events import Retrying, TextDelta, ThinkingDelta
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
    ToolResult,
    UserMessage,
)
from retinue.core.tool import ToolSpec
from retinue.core.usage import Usage


class Prices(Struct, frozen=True):
    """US dollars per million tokens. `above` holds the prices of a whole request whose input,
    cached or not, exceeds that many tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    above: tuple[int, Prices] | None = None


class ModelInfo(Struct, frozen=True):
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


class ModelRequest(Struct, frozen=True, kw_only=True):
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
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of a request over HTTP."""


class ToolCallStarted(Struct, frozen=True):
    """The model began a tool call; its arguments arrive whole in `Finished`."""

    name: str


class Alive(Struct, frozen=True):
    """Something arrived that shows nothing: a piece of a call's arguments, a ping. It keeps a
    model that writes a long file from looking idle."""


class Noted(Struct, frozen=True):
    """Something about the request that people should know and that did not stop it: a value that
    was changed, another model that answered. `code` is stable."""

    code: str
    text: str


class Finished(Struct, frozen=True):
    message: AssistantMessage


Part = TextDelta | ThinkingDelta | ToolCallStarted | Alive | Noted | Retrying | Finished


class Model(Protocol):
    @property
    def info(self) -> ModelInfo: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]: ...

    async def close(self) -> None: ...


UNSEEN = "[an image that this model cannot see]"
UNREAD = "[{name}: a PDF that this model does not take as a file. Read it again to get its text.]"
NOTHING = "(no output)"
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_STARTERS = frozenset({"Agent", "Task", "subagent", "dispatch_agent"})


def cache_mark(messages: Sequence[Message], ttl: str | None) -> dict[str, Any]:
    """Return the mark for a cache. A run that has started agents waits for them, often longer than the
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
    """Return whether the provider asked now wrote this message: only then may its signatures return."""
    return message.model.partition("/")[0] == info.provider


def sent_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as they go back: an object always, so that a broken call does not break
    every later request. What the model wrote stays readable for it."""
    if call.broken is not None:
        return {"INVALID_JSON": call.broken[:4000]}
    return dict(call.arguments)


def safe_id(id: str) -> str:
    """Return a call id that every provider accepts; the same id always becomes the same one."""
    if id and len(id) <= 64 and _SAFE.issuperset(id):
        return id
    return "call_" + hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:32]


def short_id(id: str, length: int) -> str:
    """Return a call id of exactly so many letters and digits, as Mistral's template wants it."""
    if len(id) == length and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:length]


def visible(parts: Sequence[Content], info: ModelInfo) -> list[Content]:
    """Return the parts a model can take: no empty text, and words in place of images it cannot see and
    of documents it cannot read."""
    contents: list[Content] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                contents.append(part)
        elif isinstance(part, Image):
            contents.append(part if info.images else Text(UNSEEN))
        else:
            contents.append(part if info.documents else Text(UNREAD.format(name=part.name)))
    return contents


def joined_text(parts: Iterable[object]) -> str:
    """Return the texts among the parts of a message, one a line."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def visible_files(result: ToolResult, info: ModelInfo) -> list[Image | Document]:
    """Return the images and documents of a result that a model can take."""
    return [part for part in visible(result.content, info) if isinstance(part, (Image, Document))]


def join_turns(turns: Iterable[tuple[str, list[dict[str, Any]]]], key: str) -> list[dict[str, Any]]:
    """Return alternating turns: neighbours of the same role are one message, whose parts are under `key`."""
    joined: list[dict[str, Any]] = []
    for role, parts in turns:
        if joined and parts and joined[-1]["role"] == role:
            joined[-1][key] += parts
        elif parts:
            joined.append({"role": role, key: parts})
    return joined


def has_documents(request: ModelRequest) -> bool:
    parts: list[Content] = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            parts += message.content
        elif isinstance(message, ToolMessage):
            for result in message.results:
                parts += result.content
    return any(isinstance(part, Document) for part in parts)


def result_text(result: ToolResult) -> str:
    return result.text or NOTHING


def data_url(part: Image | Document) -> str:
    return f"data:{part.media_type};base64,{part.data}"


CACHE_WRITE_FACTOR = 1.25
"""What writing to a cache costs, relative to plain input, where the price list does not say."""
LONG_WRITE_FACTOR = 2.0
"""What writing for an hour costs, relative to plain input (platform.claude.com prompt-caching)."""


def priced(usage: Usage, prices: Prices | None, long_writes: int = 0) -> Usage:
    """Return the usage of one request with its cost; None for a model without prices, so that unknown
    is not free. A long request is priced by its tier (`Prices.above`), as a whole. Cached
    input without a price of its own counts as plain input: never an underestimate. `long_writes`
    of the tokens written are kept for an hour and cost more."""
    if prices is None:
        return replace(usage, cost_usd=None)
    if prices.above is not None and usage.input + usage.cache_read + usage.cache_write > prices.above[0]:
        prices = prices.above[1]
    read = prices.input if prices.cache_read is None else prices.cache_read
    write = prices.input * CACHE_WRITE_FACTOR if prices.cache_write is None else prices.cache_write
    dollars = (
        usage.input * prices.input + usage.output * prices.output + usage.cache_read * read + usage.cache_write * write
    )
    if long_writes:
        dollars += min(long_writes, usage.cache_write) * max(prices.input * LONG_WRITE_FACTOR - write, 0.0)
    return replace(usage, cost_usd=dollars / 1_000_000)


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
