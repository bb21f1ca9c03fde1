"""The output of a tool is in the log once: in the end of its call. `tools.ended` refers to it.

A turn's `tools.ended` holds the results of all its calls in call order, nearly always those that the `tool.ended`
of each call holds already. It is written as

    {"type":"tools.ended","ended":[7,null],"message":{"type":"tool","results":[…]}}

where a number is that of the `tool.ended` in the same run which has the result, and null stands for the next one of
`results`: a call that never ran, or one whose result was changed afterwards. Readers get the whole event, as they do
from logs of before, in which every result is in `message`.

Streamed text of a run without secrets, and the redactor the log needs, which the guard provides.

The end of each piece is held back until it is clear that no secret begins there.

The events of one hand-over to the writer, as the rows that go into the file: encoded, without secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import encode
from retinue.core.events import (
    TRANSIENT,
    Body,
    Event,
    RunEnded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolProgress,
    ToolsEnded,
    TurnEnded,
)
from retinue.core.messages import Text, ToolMessage, ToolResult
from retinue.log.troubles import LABELLED, label

_HEAD = '{"type":"tools.ended",'
_REFERS = _HEAD + '"ended":['
_MESSAGE = '{"type":"tools.ended","message":{"type":"tool","results":[%s]}}'

_SHORT = 200
"""Characters of an output below which a second copy costs less than looking for the first."""

Places = tuple[int | None, ...]


class WrittenResult(Struct):
    """The result of a call whose end is in the file: as the tool said it, and as the file has it, without secrets."""

    seq: int
    said: ToolResult
    written: ToolResult


Sources = tuple[WrittenResult | None, ...]
"""For each result of a `tools.ended`, where the file has it already."""


class WrittenResults:
    """The results of the turns that are going on, for the one who writes them."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, list[WrittenResult]]] = {}

    def take(self, event: Event) -> WrittenResult | None:
        """Keep the result of an end until the turn or the run is over, and return it; None for one too short to refer
        to."""
        body = event.body
        if isinstance(body, ToolEnded):
            if _is_short(body.result):
                return None
            found = WrittenResult(event.seq, body.result, body.result)
            self._runs.setdefault(event.run_id, {}).setdefault(body.call_id, []).append(found)
            return found
        self._runs.pop(event.run_id, None)
        return None

    def find(self, run_id: str, body: ToolsEnded) -> Sources:
        """Return which results of a turn that is over are in the file already."""
        known = self._runs.pop(run_id, None)
        if known is None:
            return ()
        return tuple(_same(known.get(result.call_id, ()), result) for result in body.message.results)


def _is_short(result: ToolResult) -> bool:
    content = result.content
    return len(content) == 1 and isinstance(content[0], Text) and len(content[0].text) < _SHORT


def _same(known: Sequence[WrittenResult], result: ToolResult) -> WrittenResult | None:
    for each in known:
        if each.said is result or each.said == result:
            return each
    return None


def remainder(body: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return a `tools.ended` with those results only that are nowhere else."""
    pairs = zip(body.message.results, sources, strict=True)
    return ToolsEnded(ToolMessage(tuple(result for result, source in pairs if source is None)))


def completed(said: ToolsEnded, rest: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return the `tools.ended` that readers of the file get: the same object, unless a secret was taken out."""
    left = iter(rest.message.results)
    results = tuple(next(left) if source is None else source.written for source in sources)
    same = all(new is old for new, old in zip(results, said.message.results, strict=True))
    return said if same else ToolsEnded(ToolMessage(results))


def with_places(data: str, sources: Sources) -> str:
    """Return the JSON of a remainder with the places of the other results."""
    numbers = ",".join("null" if source is None else str(source.seq) for source in sources)
    return f"{_REFERS}{numbers}],{data[len(_HEAD) :]}"


# For readers


def refers(body: str) -> bool:
    """Return whether a stored body refers to results of other events."""
    return body.startswith(_REFERS)


class _Stored(Struct):
    ended: Places
    message: ToolMessage


class _RawMessage(Struct):
    results: list[msgspec.Raw]


class _StoredJson(Struct):
    ended: Places
    message: _RawMessage


class _EndJson(Struct):
    result: msgspec.Raw


def read_whole(body: str, result_of: Callable[[int], ToolResult]) -> ToolsEnded:
    """Return the event that a stored body means; `result_of` knows the result of an earlier end of the run."""
    stored = msgspec.json.decode(body, type=_Stored)
    left = iter(stored.message.results)
    results = [next(left) if place is None else result_of(place) for place in stored.ended]
    return ToolsEnded(ToolMessage(tuple(results)))


def whole_json(body: str, end_of: Callable[[int], str]) -> str:
    """Return the JSON of the event that a stored body means; `end_of` knows the JSON of an earlier end of the run."""
    stored = msgspec.json.decode(body, type=_StoredJson)
    left = iter(stored.message.results)
    results = []
    for place in stored.ended:
        if place is None:
            result = next(left)
        else:
            result = msgspec.json.decode(end_of(place), type=_EndJson).result
        results.append(bytes(result).decode())
    return _MESSAGE % ",".join(results)


class TextStream(Protocol):
    """Text that arrives in pieces. What `feed` returns is safe to show; it may hold back the
    end of a piece until it is clear that no secret begins there. `finish` returns the rest."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


class TextRedactor(Protocol):
    def suspects(self, encoded: bytes) -> bool:
        """Whether any of some bodies, as JSON on a line each, holds a secret. May be wrong about
        there being one, never about there being none."""
        ...

    def body(self, body: Body, encoded: bytes) -> Body:
        """`body` without secrets: the very same object when it has none. `encoded` is its JSON,
        which is quicker to look through than the object."""
        ...

    def stream(self) -> TextStream: ...


Delta = TextDelta | ThinkingDelta | ToolProgress


class StreamRedactor:
    """The open streams of one run: its answer, its thoughts, and one for each running tool."""

    __slots__ = ("_redact", "_speaking", "_stream", "_tools")

    def __init__(self, redact: TextRedactor) -> None:
        self._redact = redact
        self._speaking: type[TextDelta] | type[ThinkingDelta] = TextDelta
        self._stream: TextStream | None = None
        self._tools: dict[str, TextStream] = {}

    def say(self, delta: Delta) -> list[Delta]:
        """Return the text that may be shown now that `delta` has arrived; often a little less, never more."""
        if isinstance(delta, ToolProgress):
            tool = self._tools.get(delta.call_id)
            if tool is None:
                tool = self._tools[delta.call_id] = self._redact.stream()
            text = tool.feed(delta.text)
            return [ToolProgress(delta.call_id, text)] if text else []
        rest = self._pause() if type(delta) is not self._speaking else []
        if self._stream is None:
            self._stream, self._speaking = self._redact.stream(), type(delta)
        text = self._stream.feed(delta.text)
        if text == delta.text:
            return [*rest, delta]
        return [*rest, self._speaking(text)] if text else rest

    def before(self, body: Body) -> list[Delta]:
        """Return the text that must be shown before the durable event `body` takes its place in the order."""
        rest = self._pause()
        if isinstance(body, ToolEnded):
            ended = self._tools.pop(body.call_id, None)
            if ended is not None:
                rest += _progress(body.call_id, ended.finish())
        elif self._tools and isinstance(body, (ToolsEnded, TurnEnded, RunEnded)):
            for call_id, stream in self._tools.items():
                rest += _progress(call_id, stream.finish())
            self._tools = {}
        return rest

    @property
    def silent(self) -> bool:
        return self._stream is None and not self._tools

    def _pause(self) -> list[Delta]:
        if self._stream is None:
            return []
        text, self._stream = self._stream.finish(), None
        return [self._speaking(text)] if text else []


def _progress(call_id: str, text: str) -> list[Delta]:
    return [ToolProgress(call_id, text)] if text else []


EventRow = tuple[str, int, float, str, str, str | None, str | None]
Encoded = tuple[Body, bytes]

_HOLDING_RESULTS = frozenset({ToolEnded, RunEnded})
_LOOKED_AT = 256
"""How many bodies are looked through for secrets at once."""


class LogBatch(Struct):
    """What one hand-over from the event loop holds, in order. `rows` is filled once, by the
    writer, so that a second attempt after a full disk does not do the work again."""

    number: int
    events: list[Event]
    cut: tuple[str, ...] = ()
    """Runs that this process goes on with no more, though they have no ending."""
    rows: list[EventRow] | None = None

    def prepare(self, redact: TextRedactor | None, results: WrittenResults) -> list[EventRow]:
        """Return the rows of the durable events. `results` are those of the turns that are going on."""
        if self.rows is None:
            ends: dict[int, WrittenResult] = {}
            sources: dict[int, Sources] = {}
            durable: list[int] = []
            made: list[Encoded] = []
            for at, event in enumerate(self.events):
                body = event.body
                kind = type(body)
                if kind in TRANSIENT:
                    continue
                durable.append(at)
                if kind in _HOLDING_RESULTS:
                    end = results.take(event)
                    if end is not None:
                        ends[at] = end
                elif isinstance(body, ToolsEnded):
                    found = results.find(event.run_id, body)
                    if any(found):
                        sources[at] = found
                        body = remainder(body, found)
                made.append(encode(body))
            if redact is not None:
                made = _clean_all(made, redact)
            self.rows = self._rows(durable, made, ends, sources)
        return self.rows

    def _rows(
        self, durable: list[int], made: list[Encoded], ends: dict[int, WrittenResult], sources: dict[int, Sources]
    ) -> list[EventRow]:
        rows: list[EventRow] = []
        for at, (body, data) in zip(durable, made, strict=True):
            event = self.events[at]
            text = data.decode()
            level = source = None
            if type(body) in LABELLED:
                level, source = label(body)
                if at in ends and isinstance(body, ToolEnded):
                    ends[at].written = body.result
            elif at in sources and isinstance(body, ToolsEnded) and isinstance(event.body, ToolsEnded):
                text = with_places(text, sources[at])
                body = completed(event.body, body, sources[at])
            if body is not event.body:
                # Subscribers get the event from here, and must not see what the file does not hold.
                event = self.events[at] = replace(event, body=body)
            rows.append((event.run_id, event.seq, event.at, body.type, text, level, source))
        return rows


def _clean_all(made: list[Encoded], redact: TextRedactor) -> list[Encoded]:
    clean: list[Encoded] = []
    for start in range(0, len(made), _LOOKED_AT):
        clean += _clean(made[start : start + _LOOKED_AT], redact)
    return clean


def _clean(made: list[Encoded], redact: TextRedactor) -> list[Encoded]:
    """Nearly always there is nothing to hide, and one look at all of them is enough to know. A
    secret does not go across the line feed between two bodies, nor begin with one."""
    if not redact.suspects(b"\n".join([data for _, data in made])):
        return made
    clean = [redact.body(body, data) for body, data in made]
    return [old if body is old[0] else encode(body) for body, old in zip(clean, made, strict=True)]
