"""Events on their way into the log: encoded, without secrets, and each output of a tool once.

A turn's `tools.ended` holds the results of all its calls in call order, nearly always those that the `tool.ended`
of each call holds already. It is written as

    {"type":"tools.ended","ended":[7,null],"message":{"type":"tool","results":[…]}}

where a number is that of the `tool.ended` in the same run which has the result, and null stands for the next one of
`results`: a call that never ran, or one whose result was changed afterwards. Readers get the complete event, as they do
from older logs, in which every result is in `message`.

Streamed text without secrets comes from the redactor of the guard. The end of each piece is held back until it is clear
that no secret begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import encode
from retinue.core.events import TRANSIENT, TURN_ENDS, Body, Delta, Event, ToolEnded, ToolProgress, ToolsEnded
from retinue.core.messages import Text, ToolMessage, ToolResult
from retinue.log.troubles import LABELLED, label

_TOOLS_ENDED = '{"type":"tools.ended",'
_REFERRING = _TOOLS_ENDED + '"ended":['
_COMPLETE = '{"type":"tools.ended","message":{"type":"tool","results":[%s]}}'

_MIN_SHARED_CHARACTERS = 200
"""A second copy of a shorter output costs less than looking for the first."""

Places = tuple[int | None, ...]


class WrittenResult(Struct):
    """The result of a call whose end is in the file: as the tool returned it, and without secrets as in the file."""

    seq: int
    original: ToolResult
    written: ToolResult


Sources = tuple[WrittenResult | None, ...]
"""For each result of a `tools.ended`, where the file has it already."""


class WrittenResults:
    """The results of the turns at work, for the writer."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, list[WrittenResult]]] = {}

    def add(self, run_id: str, seq: int, result: ToolResult) -> WrittenResult | None:
        """Keep the result of a call until its turn is over, and return it; None for one too short to refer to."""
        content = result.content
        if len(content) == 1 and isinstance(content[0], Text) and len(content[0].text) < _MIN_SHARED_CHARACTERS:
            return None
        written = WrittenResult(seq, result, result)
        self._runs.setdefault(run_id, {}).setdefault(result.call_id, []).append(written)
        return written

    def pop(self, run_id: str) -> dict[str, list[WrittenResult]]:
        """Forget the results of a turn that is over, and return them by call."""
        return self._runs.pop(run_id, {})


def find_sources(body: ToolsEnded, written: Mapping[str, list[WrittenResult]]) -> Sources:
    """Return which results of a turn are in the file already."""
    return tuple(
        next((entry for entry in written.get(result.call_id, ()) if entry.original == result), None)
        for result in body.message.results
    )


def remainder(body: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return a `tools.ended` with those results only that are nowhere else."""
    pairs = zip(body.message.results, sources, strict=True)
    return ToolsEnded(ToolMessage(tuple(result for result, source in pairs if source is None)))


def completed(original: ToolsEnded, remaining: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return the `tools.ended` that readers of the file get: the same object, unless a secret was taken out."""
    unshared = iter(remaining.message.results)
    results = tuple(next(unshared) if source is None else source.written for source in sources)
    same = all(new is old for new, old in zip(results, original.message.results, strict=True))
    return original if same else ToolsEnded(ToolMessage(results))


def with_places(data: str, sources: Sources) -> str:
    """Return the JSON of a remainder with the places of the other results."""
    numbers = ",".join("null" if source is None else str(source.seq) for source in sources)
    return f"{_REFERRING}{numbers}],{data[len(_TOOLS_ENDED) :]}"


# For readers


def refers(body: str) -> bool:
    """Return whether a stored body refers to results of other events."""
    return body.startswith(_REFERRING)


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
    unshared = iter(stored.message.results)
    results = [next(unshared) if seq is None else result_of(seq) for seq in stored.ended]
    return ToolsEnded(ToolMessage(tuple(results)))


def whole_json(body: str, end_of: Callable[[int], str]) -> str:
    """Return the JSON of the event that a stored body means; `end_of` knows the JSON of an earlier end of the run."""
    stored = msgspec.json.decode(body, type=_StoredJson)
    unshared = iter(stored.message.results)
    results = [
        next(unshared) if seq is None else msgspec.json.decode(end_of(seq), type=_EndJson).result
        for seq in stored.ended
    ]
    return _COMPLETE % ",".join(bytes(result).decode() for result in results)


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


class StreamRedactor:
    """The open streams of one run: its answer or its thoughts, under None, and each running tool under its call."""

    __slots__ = ("_redact", "_streams")

    def __init__(self, redact: TextRedactor) -> None:
        self._redact = redact
        self._streams: dict[str | None, tuple[Delta, TextStream]] = {}

    def feed(self, delta: Delta) -> list[Delta]:
        """Return the text that may be shown now that `delta` has arrived; often a little less, never more."""
        key = delta.call_id if isinstance(delta, ToolProgress) else None
        shown: list[Delta] = []
        entry = self._streams.get(key)
        if entry is not None and type(entry[0]) is not type(delta):
            shown, entry = self._finish(key), None
        if entry is None:
            entry = self._streams[key] = delta, self._redact.stream()
        text = entry[1].feed(delta.text)
        if text:
            shown.append(delta if text == delta.text else replace(delta, text=text))
        return shown

    def before(self, body: Body) -> list[Delta]:
        """Return the text that must be shown before the durable event `body` takes its place in the order."""
        shown = self._finish(None)
        if isinstance(body, ToolEnded):
            shown += self._finish(body.call_id)
        elif isinstance(body, TURN_ENDS):
            for key in tuple(self._streams):
                shown += self._finish(key)
        return shown

    @property
    def silent(self) -> bool:
        return not self._streams

    def _finish(self, key: str | None) -> list[Delta]:
        entry = self._streams.pop(key, None)
        text = entry[1].finish() if entry is not None else ""
        return [replace(entry[0], text=text)] if entry is not None and text else []


EventRow = tuple[str, int, float, str, str, str | None, str | None]
Encoded = tuple[Body, bytes]

_REDACTED_AT_ONCE = 256
"""Bodies that are searched for secrets together."""


class LogBatch(Struct):
    """What one hand-over from the event loop holds, in order. `rows` is filled once, by the
    writer, so that a second attempt after a full disk does not do the work again."""

    number: int
    events: list[Event]
    cut: tuple[str, ...] = ()
    """Runs without an ending that this process does not continue."""
    rows: list[EventRow] | None = None

    def prepare(self, redact: TextRedactor | None, results: WrittenResults) -> list[EventRow]:
        """Return the rows of the durable events. `results` are those of the turns at work."""
        if self.rows is None:
            ends: dict[int, WrittenResult | None] = {}
            sources: dict[int, Sources] = {}
            durable: list[int] = []
            encoded: list[Encoded] = []
            for index, event in enumerate(self.events):
                body = event.body
                kind = type(body)
                if kind in TRANSIENT:
                    continue
                durable.append(index)
                if isinstance(body, ToolEnded):
                    ends[index] = results.add(event.run_id, event.seq, body.result)
                elif kind in TURN_ENDS:
                    written = results.pop(event.run_id)
                    if written and isinstance(body, ToolsEnded) and any(found := find_sources(body, written)):
                        sources[index] = found
                        body = remainder(body, found)
                encoded.append(encode(body))
            if redact is not None:
                starts = range(0, len(encoded), _REDACTED_AT_ONCE)
                encoded = [
                    clean for start in starts for clean in _clean(encoded[start : start + _REDACTED_AT_ONCE], redact)
                ]
            self.rows = self._rows(durable, encoded, ends, sources)
        return self.rows

    def _rows(
        self,
        durable: list[int],
        encoded: list[Encoded],
        ends: Mapping[int, WrittenResult | None],
        sources: Mapping[int, Sources],
    ) -> list[EventRow]:
        rows: list[EventRow] = []
        for index, (body, data) in zip(durable, encoded, strict=True):
            event = self.events[index]
            text = data.decode()
            level = source = None
            if type(body) in LABELLED:
                level, source = label(body)
                if isinstance(body, ToolEnded) and (end := ends.get(index)) is not None:
                    end.written = body.result
            elif index in sources and isinstance(body, ToolsEnded) and isinstance(event.body, ToolsEnded):
                text = with_places(text, sources[index])
                body = completed(event.body, body, sources[index])
            if body is not event.body:
                # Subscribers get the event from here, and must not see what the file does not hold.
                event = self.events[index] = replace(event, body=body)
            rows.append((event.run_id, event.seq, event.at, body.type, text, level, source))
        return rows


def _clean(encoded: list[Encoded], redact: TextRedactor) -> list[Encoded]:
    """Return the bodies without secrets. One look at all of them is nearly always enough: a secret neither crosses
    the line feed between two bodies nor begins with one."""
    if not redact.suspects(b"\n".join([data for _, data in encoded])):
        return encoded
    clean = [redact.body(body, data) for body, data in encoded]
    return [old if body is old[0] else encode(body) for body, old in zip(clean, encoded, strict=True)]
