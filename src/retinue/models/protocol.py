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
from retinue.core.tool_names import STARTING_TOOLS
from retinue.core.usage import Usage


class Prices(Struct, frozen=True):
    """US dollars per million tokens. `above` is a number of input tokens, cached or not, and the prices of requests
    with more."""

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
    """One request. A run never changes `system` and `tools` between turns, so that the caches of providers hit."""

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
    """The model has begun a tool call. `Finished` holds its arguments."""

    name: str


class Alive(Struct, frozen=True):
    """Data arrived that is not shown, such as a piece of a call's arguments or a ping. It shows that the model is not
    idle."""


class Noted(Struct, frozen=True):
    """A note for people about a request that succeeded, such as a changed value or another model. `code` is
    stable."""

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


UNSEEN_IMAGE = "[an image that this model cannot see]"
UNREAD_DOCUMENT = "[{name}: a PDF that this model does not take as a file. Read it again to get its text.]"
NO_OUTPUT = "(no output)"
_STARTING_CALLS = STARTING_TOOLS | {"Task"}
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def cache_mark(messages: Sequence[Message], ttl: str | None) -> dict[str, Any]:
    """Return the mark up to which a request is cached. A run that has started agents often waits for them for more than
    five minutes, so its cache is kept for an hour."""
    if ttl == "1h" or (ttl is None and _has_started_agents(messages)):
        return {"type": "ephemeral", "ttl": "1h"}
    return {"type": "ephemeral"}


def _has_started_agents(messages: Sequence[Message]) -> bool:
    for message in messages:
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolCall) and block.name in _STARTING_CALLS:
                    return True
    return False


def is_from_provider(message: AssistantMessage, info: ModelInfo) -> bool:
    """Return whether the provider of `info` wrote this message. Only then may its signatures go back."""
    return message.model.partition("/")[0] == info.provider


def sent_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as they are sent back to the model. They are always an object, because broken JSON
    would make the provider refuse every later request. The model can still read what it wrote."""
    if call.broken is not None:
        return {"INVALID_JSON": call.broken[:4000]}
    return dict(call.arguments)


def safe_id(id: str) -> str:
    """Return a call id that every provider accepts. Equal ids stay equal."""
    if id and len(id) <= 64 and _ID_CHARACTERS.issuperset(id):
        return id
    return "call_" + hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:32]


def short_id(id: str, length: int) -> str:
    """Return a call id of `length` letters and digits, as Mistral's template requires."""
    if len(id) == length and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:length]


def visible(content: Sequence[Content], info: ModelInfo) -> list[Content]:
    """Return the content that a model accepts: without empty texts, and with a text in place of each image or document
    that it does not accept."""
    blocks: list[Content] = []
    for block in content:
        if isinstance(block, Text):
            if block.text:
                blocks.append(block)
        elif isinstance(block, Image):
            blocks.append(block if info.images else Text(UNSEEN_IMAGE))
        else:
            blocks.append(block if info.documents else Text(UNREAD_DOCUMENT.format(name=block.name)))
    return blocks


def visible_files(result: ToolResult, info: ModelInfo) -> list[Image | Document]:
    """Return the images and documents of a result that a model accepts."""
    return [block for block in visible(result.content, info) if isinstance(block, (Image, Document))]


def join_turns(turns: Iterable[tuple[str, list[dict[str, Any]]]], key: str) -> list[dict[str, Any]]:
    """Return turns with alternating roles: neighbours of one role become one message, with their blocks under `key`."""
    joined: list[dict[str, Any]] = []
    for role, blocks in turns:
        if joined and blocks and joined[-1]["role"] == role:
            joined[-1][key] += blocks
        elif blocks:
            joined.append({"role": role, key: list(blocks)})
    return joined


def has_documents(request: ModelRequest) -> bool:
    content: list[Content] = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            content += message.content
        elif isinstance(message, ToolMessage):
            for result in message.results:
                content += result.content
    return any(isinstance(block, Document) for block in content)


def result_text(result: ToolResult) -> str:
    return result.text or NO_OUTPUT


def data_url(file: Image | Document) -> str:
    return f"data:{file.media_type};base64,{file.data}"


CACHE_WRITE_FACTOR = 1.25
"""The price of writing to a cache relative to plain input, if the price list has none."""
LONG_WRITE_FACTOR = 2.0
"""The price of writing for an hour relative to plain input (platform.claude.com prompt-caching)."""


def priced(usage: Usage, prices: Prices | None, long_writes: int = 0) -> Usage:
    """Return the usage of one request with its cost. The cost is None for a model without prices. The prices of the
    tier (`Prices.above`) apply to a long request as a whole. Cached input without a price is priced as plain input, so
    the cost is never underestimated. `long_writes` of the written tokens are kept for an hour and cost more."""
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
_MESSAGE_TOKENS = 4


def estimate(messages: Iterable[Message]) -> int:
    """Return the tokens of `messages`: one for four characters, and a flat number for an image."""
    return sum(_message_tokens(message) for message in messages)


def overhead(system: str, tools: Sequence[ToolSpec]) -> int:
    """Return the tokens of the prefix that all requests have."""
    characters = len(system) + sum(len(t.name) + len(t.description) + _json_length(t.parameters) for t in tools)
    return characters // _CHARACTERS_PER_TOKEN


def _message_tokens(message: Message) -> int:
    if isinstance(message, ToolMessage):
        return sum(_content_tokens(result.content) + _MESSAGE_TOKENS for result in message.results)
    return _content_tokens(message.content) + _MESSAGE_TOKENS


def _content_tokens(content: Sequence[Content | Thinking | ToolCall]) -> int:
    tokens = characters = 0
    for block in content:
        match block:
            case Text():
                characters += len(block.text)
            case Image():
                tokens += _IMAGE_TOKENS
            case Document():
                tokens += _document_tokens(block)
            case Thinking():
                characters += len(block.text) + len(block.signature or "") + len(block.redacted or "")
            case ToolCall():
                characters += len(block.name) + _json_length(block.arguments) + len(block.broken or "")
    return tokens + characters // _CHARACTERS_PER_TOKEN


def _document_tokens(document: Document) -> int:
    """Return the tokens of a PDF: each page costs its text and an image (platform.claude.com "PDF support": 1,500 to
    3,000 tokens of text a page). The number of pages is estimated from the size if the file does not state it."""
    pages = document.pages or min(max(len(document.data) // 40_000, 1), 100)
    return pages * _PAGE_TOKENS


def _json_length(value: Mapping[str, Any]) -> int:
    return len(orjson.dumps(value, default=dict))


class MeasuredConversation:
    """The messages of a run and how much of the window they take."""

    def __init__(self, prefix: int, messages: Sequence[Message], estimated: int | None = None) -> None:
        """`estimated` is the estimate of `messages`, if it was made already."""
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
        """Return the ratio of real to estimated tokens, to predict what a cut will save. `estimated` is the estimate of
        all messages."""
        return min(max(self.tokens / max(self._prefix + estimated, 1), 0.5), 4.0)

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self._estimated += _message_tokens(message)

    def answered(self, message: AssistantMessage) -> None:
        """Add the model's message. Its usage states the exact size of the conversation."""
        if message.content:
            self.messages.append(message)
        usage = message.usage
        if usage.input + usage.cache_read + usage.cache_write > 0:
            self._counted, self._estimated = usage.context_tokens, 0
        elif message.content:
            self._estimated += _message_tokens(message)

    def replace(self, messages: Sequence[Message], tokens: int) -> None:
        self.messages = list(messages)
        self._counted, self._estimated = tokens, 0
