"""The draft of an answer: pieces of a stream are merged into blocks, and the blocks become the message.

All wire formats use this. A format only decides which block a piece belongs to. Pieces are kept in lists and joined
once, so the cost of an answer is linear in its size.

JSON is repaired only if there is a single possible reading. Arguments that were cut off, or followed by other text, are
reported as broken, with the raw text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import orjson
from msgspec.structs import replace

from retinue.core.events import TextDelta, ThinkingDelta
from retinue.core.messages import AssistantMessage, Message, StopReason, Text, Thinking, ToolCall
from retinue.core.outcome import Failure
from retinue.core.usage import NOTHING, Usage
from retinue.models.protocol import Finished, ModelInfo, Part, Prices, ToolCallStarted, priced


def parse_event(data: bytes) -> Any:
    """Return one event of a stream. Invalid UTF-8 and lone surrogates become U+FFFD. Raise ValueError for invalid
    JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return _plain(json.loads(data.decode("utf-8", "replace"), parse_constant=_refuse))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def parse_arguments(raw: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of a tool call, and the raw text if they cannot be used.

    An empty text and `null` mean no arguments. An object inside a JSON string is unwrapped once, and unescaped line
    breaks inside strings are accepted.
    """
    text = raw.strip()
    if not text:
        return {}, None
    value = _lenient(text)
    if isinstance(value, str):
        value = _lenient(value)
    if isinstance(value, dict):
        return value, None
    return {}, None if value is None and text == "null" else raw


def _lenient(text: str) -> Any:
    """Return the value of JSON with line breaks in strings; None for an invalid text."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        pass
    try:
        return _plain(json.loads(text, strict=False, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Return the value with only characters that UTF-8 can encode. Raise ValueError for numbers beyond JSON."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return orjson.loads(text)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


OWN_ID_PREFIX = "rtn_"
"""The prefix of ids that Retinue makes for calls without a usable id."""


class TextDraft:
    __slots__ = ("pieces", "signature")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.signature: str | None = None


class ThinkingDraft:
    __slots__ = ("pieces", "redacted", "signature")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.signature: str | None = None
        self.redacted: str | None = None


class CallDraft:
    __slots__ = ("_complete_arguments", "id", "name", "pieces", "signature")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self.signature: str | None = None
        self._complete_arguments = ""

    def take(self, piece: object) -> None:
        """Add the next piece of the arguments' text."""
        if not isinstance(piece, str):
            raise TypeError("arguments of a tool call must be text")
        self.pieces.append(piece)

    def give(self, arguments: object) -> None:
        """Set the complete arguments, as an object or as text. Pieces that arrive later replace them."""
        if arguments:
            self._complete_arguments = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()

    @property
    def arguments(self) -> str:
        return "".join(self.pieces) or self._complete_arguments


class MessageDraft:
    """A message while it is streamed. `shown` returns the events since its last call; pieces of one kind that arrived
    together are one delta."""

    __slots__ = (
        "_delta_kind",
        "_delta_pieces",
        "_events",
        "blocks",
        "failure",
        "history",
        "info",
        "long_writes",
        "refusal",
        "stop",
        "usage",
    )

    def __init__(self, info: ModelInfo, history: Iterable[Message] = ()) -> None:
        self.info = info
        self.blocks: list[TextDraft | ThinkingDraft | CallDraft] = []
        self.usage = NOTHING
        self.long_writes = 0
        self.stop: StopReason | None = None
        self.failure: Failure | None = None
        self.refusal: list[str] = []
        self.history = history
        self._events: list[Part] = []
        self._delta_kind: type[TextDelta] | type[ThinkingDelta] | None = None
        self._delta_pieces: list[str] = []

    # Pieces

    def text(self, piece: str) -> None:
        """Continue the last block if it is a text, else begin one."""
        last = self.blocks[-1] if self.blocks else None
        if not isinstance(last, TextDraft):
            if not piece:
                return
            last = self.add_text()
        self.extend(last, piece)

    def thinking(self, piece: str) -> ThinkingDraft:
        last = self.blocks[-1] if self.blocks else None
        if not isinstance(last, ThinkingDraft) or last.redacted is not None:
            last = self.add_thinking()
        self.extend(last, piece)
        return last

    def add_text(self) -> TextDraft:
        text = TextDraft()
        self.blocks.append(text)
        return text

    def add_thinking(self) -> ThinkingDraft:
        thinking = ThinkingDraft()
        self.blocks.append(thinking)
        return thinking

    def add_call(self, id: object, name: object) -> CallDraft:
        call = CallDraft(id if isinstance(id, str) else "", name if isinstance(name, str) else "")
        self.blocks.append(call)
        self._end_delta()
        self._events.append(ToolCallStarted(call.name))
        return call

    def extend(self, block: TextDraft | ThinkingDraft, piece: str) -> None:
        if not isinstance(piece, str):
            raise TypeError("text expected")
        if piece:
            block.pieces.append(piece)
            self._show(TextDelta if isinstance(block, TextDraft) else ThinkingDelta, piece)

    def refuse(self, piece: str) -> None:
        """Add a piece of the text in which the model declines. It is shown as text and reported as a refusal."""
        self.refusal.append(piece)
        self.text(piece)

    def fail(self, failure: Failure) -> None:
        if self.failure is None:
            self.failure = failure

    def fail_filtered(self) -> None:
        self.stop = "refusal"
        self.fail(Failure("refused", f"{self.info.full_name} stopped: its content filter stepped in."))

    def fail_full(self) -> None:
        self.fail(Failure("context_overflow", f"The answer of {self.info.full_name} filled its context window."))

    def fail_unfinished(self, failure: Failure) -> None:
        """Fail unless the answer is complete: errors after its end are ignored."""
        if self.stop is None:
            self.fail(failure)

    # Events to show

    def _show(self, kind: type[TextDelta] | type[ThinkingDelta], piece: str) -> None:
        if kind is not self._delta_kind:
            self._end_delta()
            self._delta_kind = kind
        self._delta_pieces.append(piece)

    def _end_delta(self) -> None:
        if self._delta_pieces:
            assert self._delta_kind is not None
            self._events.append(self._delta_kind("".join(self._delta_pieces)))
            self._delta_pieces = []
        self._delta_kind = None

    def shown(self) -> list[Part]:
        self._end_delta()
        events, self._events = self._events, []
        return events

    # The message

    @property
    def uncounted(self) -> bool:
        """Whether the provider did not report the usage of an answer that is not free."""
        return self.failure is None and not self.usage.context_tokens and not _is_free(self.info.prices)

    def finished(self) -> Finished:
        """Return the complete message. A failed message keeps its text and thinking but not its calls: they may be
        incomplete, and a conversation must not hold calls without results."""
        if self.failure is None and self.stop is None:
            self.fail(Failure("dropped", f"The answer of {self.info.full_name} ended before it was complete."))
        usage = priced(self.usage, self.info.prices, self.long_writes)
        if usage.cost_usd is None and self.usage.cost_usd:
            # The server reported the cost.
            usage = self.usage
        elif self.uncounted:
            # An answer without usage is not free.
            usage = replace(usage, cost_usd=None)
        if self.failure is not None and self.failure.kind != "refused":
            content = self._content(calls=False)
            return Finished(AssistantMessage(content, "error", usage, self.info.full_name, self.failure))
        stop = self.stop or "end"
        if self.failure is not None or self.refusal:
            stop = "refusal"
        content = self._content(calls=stop != "refusal")
        if stop in ("end", "tool_use"):
            stop = "tool_use" if any(isinstance(block, ToolCall) for block in content) else "end"
        failure = self.failure
        if stop == "refusal" and failure is None:
            refusal_text = "".join(self.refusal).strip()
            failure = Failure("refused", refusal_text or f"{self.info.full_name} declined to answer.")
        return Finished(AssistantMessage(content, stop, usage, self.info.full_name, failure))

    def _content(self, *, calls: bool) -> tuple[Text | Thinking | ToolCall, ...]:
        content: list[Text | Thinking | ToolCall] = []
        ids: set[str] | None = None
        for block in self.blocks:
            text = block.arguments if isinstance(block, CallDraft) else "".join(block.pieces)
            if isinstance(block, TextDraft):
                if text or block.signature:
                    content.append(Text(text, block.signature))
            elif isinstance(block, ThinkingDraft):
                if text or block.signature or block.redacted:
                    content.append(Thinking(text, block.signature, block.redacted, self.info.provider))
            elif calls:
                if ids is None:
                    ids = _call_ids(self.history)
                arguments, broken = parse_arguments(text)
                if self.stop == "length" and block is self.blocks[-1] and not arguments:
                    # It was cut off before its first argument and must not run without it.
                    broken = text
                content.append(ToolCall(_unique_id(block.id, ids), block.name, arguments, broken, block.signature))
        return tuple(content)


def _is_free(prices: Prices | None) -> bool:
    return prices is not None and not prices.input and not prices.output


def replace_usage(
    usage: Usage,
    *,
    input: object = None,
    prompt: object = None,
    output: object = None,
    cache_read: object = None,
    cache_write: object = None,
) -> Usage:
    """Return the usage with the counts that are whole numbers; other values change nothing. `prompt` includes the input
    that was read from or written to a cache, `input` does not."""
    read = _number(cache_read, usage.cache_read)
    written = _number(cache_write, usage.cache_write)
    if isinstance(prompt, int):
        input = max(0, prompt - read - written)
    return Usage(_number(input, usage.input), _number(output, usage.output), read, written, usage.cost_usd)


def _number(value: object, before: int) -> int:
    if isinstance(value, int) and value >= 0:
        return value
    return before


def _call_ids(history: Iterable[Message]) -> set[str]:
    ids: set[str] = set()
    for message in history:
        if isinstance(message, AssistantMessage):
            ids.update([block.id for block in message.content if isinstance(block, ToolCall)])
    return ids


def _unique_id(id: str, ids: set[str]) -> str:
    """Return the id of a call, or a new one if it is missing or another call has it. Add it to `ids`."""
    if not id or id in ids:
        id = OWN_ID_PREFIX + os.urandom(12).hex()
    ids.add(id)
    return id
