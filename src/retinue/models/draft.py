"""An answer being streamed: pieces merge into parts, parts become the message.

All wire formats share this. A part knows how to take the next piece, so a format only has to
say which part a piece belongs to. Pieces are kept in lists and joined once, so the cost of an answer
is linear in its bytes.

JSON is repaired only where there is one possible reading. Arguments that were cut off, or followed
by something else, are reported as broken, with the raw text.
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
    """One payload of a stream. Tolerates bad UTF-8 and lone surrogates, which become U+FFFD.
    Raise ValueError when it is not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return _plain(json.loads(data.decode("utf-8", "replace"), parse_constant=_refuse))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def parse_arguments(raw: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of a tool call, and the raw text if they cannot be used.

    No text and `null` mean no arguments. An object inside a JSON string is unwrapped once, and
    line breaks inside strings are accepted unescaped: each has only one reading.
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
    """Return the value, or None when there is none."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        pass
    try:
        return _plain(json.loads(text, strict=False, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Return the value as UTF-8 can carry it. Raise ValueError for numbers JSON has no room for."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return orjson.loads(text)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


FRESH = "rtn_"
"""Begins the ids we make for calls that came without a usable one."""


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
    __slots__ = ("_given", "id", "name", "pieces", "signature")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self.signature: str | None = None
        self._given = ""

    def take(self, piece: object) -> None:
        """Add the next piece of the arguments' text."""
        if not isinstance(piece, str):
            raise TypeError("arguments of a tool call must be text")
        self.pieces.append(piece)

    def give(self, arguments: object) -> None:
        """Whole arguments, as an object or as text; pieces, if any come, replace them."""
        if arguments:
            self._given = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()

    @property
    def arguments(self) -> str:
        return "".join(self.pieces) or self._given


class MessageDraft:
    """`parts` grow while the stream lasts; `shown` hands out what became visible since the last
    call, with neighbouring pieces of the same kind joined: what arrived together is one delta."""

    __slots__ = (
        "_kind",
        "_live",
        "_tail",
        "failure",
        "info",
        "long_writes",
        "parts",
        "refusal",
        "stop",
        "taken",
        "usage",
    )

    def __init__(self, info: ModelInfo, history: Iterable[Message] = ()) -> None:
        self.info = info
        self.parts: list[TextDraft | ThinkingDraft | CallDraft] = []
        self.usage = NOTHING
        self.long_writes = 0
        self.stop: StopReason | None = None
        self.failure: Failure | None = None
        self.refusal: list[str] = []
        self.taken = history
        self._live: list[Part] = []
        self._kind: type[TextDelta] | type[ThinkingDelta] | None = None
        self._tail: list[str] = []

    # ---------------------------------------------------------------- pieces
    def text(self, piece: str) -> None:
        """Continue the text, or begin one after something else."""
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, TextDraft):
            if not piece:
                return
            last = self.add_text()
        self.extend(last, piece)

    def thinking(self, piece: str) -> ThinkingDraft:
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, ThinkingDraft) or last.redacted is not None:
            last = self.add_thinking()
        self.extend(last, piece)
        return last

    def add_text(self) -> TextDraft:
        part = TextDraft()
        self.parts.append(part)
        return part

    def add_thinking(self) -> ThinkingDraft:
        part = ThinkingDraft()
        self.parts.append(part)
        return part

    def add_call(self, id: object, name: object) -> CallDraft:
        part = CallDraft(id if isinstance(id, str) else "", name if isinstance(name, str) else "")
        self.parts.append(part)
        self._close_tail()
        self._live.append(ToolCallStarted(part.name))
        return part

    def extend(self, part: TextDraft | ThinkingDraft, piece: str) -> None:
        if not isinstance(piece, str):
            raise TypeError("text expected")
        if piece:
            part.pieces.append(piece)
            self._show(TextDelta if isinstance(part, TextDraft) else ThinkingDelta, piece)

    def refuse(self, piece: str) -> None:
        """Words with which the model declines: shown as text, reported as a refusal."""
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
        """Garbage or a lost connection after the end of an answer does not spoil the answer."""
        if self.stop is None:
            self.fail(failure)

    # ---------------------------------------------------------------- what to show
    def _show(self, kind: type[TextDelta] | type[ThinkingDelta], piece: str) -> None:
        if kind is not self._kind:
            self._close_tail()
            self._kind = kind
        self._tail.append(piece)

    def _close_tail(self) -> None:
        if self._tail:
            assert self._kind is not None
            self._live.append(self._kind("".join(self._tail)))
            self._tail = []
        self._kind = None

    def shown(self) -> list[Part]:
        self._close_tail()
        live, self._live = self._live, []
        return live

    # ---------------------------------------------------------------- the end
    @property
    def uncounted(self) -> bool:
        """Return whether this is an answer that costs something and came without usage."""
        return self.failure is None and not self.usage.context_tokens and not _is_free(self.info.prices)

    def finished(self) -> Finished:
        """Return the whole message. A failed one keeps its text and thinking and loses its calls: they
        may be incomplete, and no call without an answer may enter a conversation."""
        if self.failure is None and self.stop is None:
            self.fail(Failure("dropped", f"The answer of {self.info.full_name} ended before it was complete."))
        usage = priced(self.usage, self.info.prices, self.long_writes)
        if usage.cost_usd is None and self.usage.cost_usd:
            # The server itself said what it charges.
            usage = self.usage
        elif self.uncounted:
            # An answer that was not counted is not free.
            usage = replace(usage, cost_usd=None)
        if self.failure is not None and self.failure.kind != "refused":
            content = self._content(calls=False)
            return Finished(AssistantMessage(content, "error", usage, self.info.full_name, self.failure))
        stop = self.stop or "end"
        if self.failure is not None or self.refusal:
            stop = "refusal"
        content = self._content(calls=stop != "refusal")
        if stop in ("end", "tool_use"):
            stop = "tool_use" if any(isinstance(part, ToolCall) for part in content) else "end"
        failure = self.failure
        if stop == "refusal" and failure is None:
            refusal_text = "".join(self.refusal).strip()
            failure = Failure("refused", refusal_text or f"{self.info.full_name} declined to answer.")
        return Finished(AssistantMessage(content, stop, usage, self.info.full_name, failure))

    def _content(self, *, calls: bool) -> tuple[Text | Thinking | ToolCall, ...]:
        content: list[Text | Thinking | ToolCall] = []
        used: set[str] | None = None
        for part in self.parts:
            text = part.arguments if isinstance(part, CallDraft) else "".join(part.pieces)
            if isinstance(part, TextDraft):
                if text or part.signature:
                    content.append(Text(text, part.signature))
            elif isinstance(part, ThinkingDraft):
                if text or part.signature or part.redacted:
                    content.append(Thinking(text, part.signature, part.redacted, self.info.provider))
            elif calls:
                if used is None:
                    used = _ids(self.taken)
                arguments, broken = parse_arguments(text)
                if self.stop == "length" and part is self.parts[-1] and not arguments:
                    # Cut off before its first argument: it must not run as it is.
                    broken = text
                content.append(ToolCall(_unique(part.id, used), part.name, arguments, broken, part.signature))
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
    """Return the usage with the counts that are whole numbers; None and nonsense change nothing. `prompt` is the input
    with what was read from and written to a cache, `input` is without it."""
    read = _number(cache_read, usage.cache_read)
    written = _number(cache_write, usage.cache_write)
    if isinstance(prompt, int):
        input = max(0, prompt - read - written)
    return Usage(_number(input, usage.input), _number(output, usage.output), read, written, usage.cost_usd)


def _number(value: object, before: int) -> int:
    if isinstance(value, int) and value >= 0:
        return value
    return before


def _ids(history: Iterable[Message]) -> set[str]:
    answers = (message for message in history if isinstance(message, AssistantMessage))
    return {call.id for answer in answers for call in answer.tool_calls}


def _unique(id: str, used: set[str]) -> str:
    """Return the id, or a fresh one where it is missing or already stands for another call."""
    if not id or id in used:
        id = FRESH + os.urandom(12).hex()
    used.add(id)
    return id
