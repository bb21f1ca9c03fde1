"""Batches of events for the log: encoded, without secrets, and with each output of a tool only once.

A turn's `tools.ended` has the results of all its calls in call order. Nearly all of them are also in the `tool.ended`
of their calls. It is written as

    {"type":"tools.ended","ended":[7,null],"message":{"type":"tool","results":[…]}}

A number refers to the `tool.ended` in the same run that has the result. Null stands for the next one of `results`: that
of a call that never ran, or whose result was changed afterwards. Readers get the complete event. In older logs all
results are in `message`.

The guard provides the redactor of streamed text. It withholds the end of each piece until it is clear that no secret
begins there.
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
from retinue.log.troubles import LABELLED_EVENTS, label

_TOOLS_ENDED_START = '{"type":"tools.ended",'
_REFERRING_START = _TOOLS_ENDED_START + '"ended":['

_MIN_SHARED_CHARACTERS = 200
"""A second copy of a shorter output costs less than searching for the first."""


class WrittenResult(Struct):
    """The result of a call whose end is in the file: as the tool returned it, and as written, without secrets."""

    seq: int
    original: ToolResult
    written: ToolResult


Sources = tuple[WrittenResult | None, ...]
"""For each result of a `tools.ended`, the written result that it repeats."""


class WrittenResults:
    """The written results of the current turns of all runs."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, list[WrittenResult]]] = {}

    def add(self, run_id: str, seq: int, result: ToolResult) -> WrittenResult | None:
        """Keep the result of a call until its turn is over, and return it; None for a result too short to refer to."""
        content = result.content
        if len(content) == 1 and isinstance(content[0], Text) and len(content[0].text) < _MIN_SHARED_CHARACTERS:
            return None
        written = WrittenResult(seq, result, result)
        self._runs.setdefault(run_id, {}).setdefault(result.call_id, []).append(written)
        return written

    def pop(self, run_id: str) -> dict[str, list[WrittenResult]]:
        """Remove the results of an ended turn, and return them by call."""
        return self._runs.pop(run_id, {})


def find_sources(body: ToolsEnded, written: Mapping[str, list[WrittenResult]]) -> Sources:
    """Return for each result of a turn the written result that it repeats, if any."""
    return tuple(
        next((entry for entry in written.get(result.call_id, ()) if entry.original == result), None)
        for result in body.message.results
    )


def remainder(body: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return a `tools.ended` with only the results that are not written elsewhere."""
    pairs = zip(body.message.results, sources, strict=True)
    return ToolsEnded(ToolMessage(tuple(result for result, source in pairs if source is None)))


def completed(original: ToolsEnded, remaining: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return the complete `tools.ended` as written: the same object, unless a secret was removed."""
    unshared = iter(remaining.message.results)
    results = tuple(next(unshared) if source is None else source.written for source in sources)
    same = all(new is old for new, old in zip(results, original.message.results, strict=True))
    return original if same else ToolsEnded(ToolMessage(results))


def with_references(data: str, sources: Sources) -> str:
    """Return the JSON of a remainder with references to the other results."""
    numbers = ",".join("null" if source is None else str(source.seq) for source in sources)
    return f"{_REFERRING_START}{numbers}],{data[len(_TOOLS_ENDED_START) :]}"


# For readers


def has_references(body: str) -> bool:
    """Return whether a stored body refers to results of other events."""
    return body.startswith(_REFERRING_START)


class _ReferringBody(Struct):
    ended: tuple[int | None, ...]
    message: ToolMessage


def resolve_references(body: str, result_of: Callable[[int], ToolResult]) -> ToolsEnded:
    """Return the complete event of a stored body. `result_of` returns the result of an earlier `tool.ended` of the
    run."""
    stored = msgspec.json.decode(body, type=_ReferringBody)
    unshared = iter(stored.message.results)
    results = [next(unshared) if seq is None else result_of(seq) for seq in stored.ended]
    return ToolsEnded(ToolMessage(tuple(results)))


class TextStream(Protocol):
    """Redacts text that arrives in pieces. `feed` returns text that is safe to show, and may withhold the end of a
    piece until it is clear that no secret begins there. `finish` returns the withheld text."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


class TextRedactor(Protocol):
    def suspects(self, encoded: bytes) -> bool:
        """Return whether any of several bodies, as JSON with one body a line, may contain a secret. False is
        certain."""
        ...

    def body(self, body: Body, encoded: bytes) -> Body:
        """Return `body` without secrets: the same object if it has none. `encoded` is its JSON, which is quicker to
        search than the object."""
        ...

    def stream(self) -> TextStream: ...


class StreamRedactor:
    """The open streams of one run: that of its answer or its thinking, with the key None, and one for each running
    tool, with the id of the call."""

    __slots__ = ("_redact", "_streams")

    def __init__(self, redact: TextRedactor) -> None:
        self._redact = redact
        self._streams: dict[str | None, tuple[Delta, TextStream]] = {}

    def feed(self, delta: Delta) -> list[Delta]:
        """Return the text that may be shown after `delta` has arrived, which is often a little less."""
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
        """Return the withheld text that must be shown before the durable event `body`."""
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

_REDACTED_BODIES = 256
"""The number of bodies that are searched for secrets together."""


class LogBatch(Struct):
    """The events that the event loop passes to the writer at once, in order. The writer fills `rows` once, so that a
    second attempt after a full disk does not repeat the work."""

    number: int
    events: list[Event]
    cut: tuple[str, ...] = ()
    """Runs without an ending that this process does not continue."""
    rows: list[EventRow] | None = None

    def prepare(self, redact: TextRedactor | None, results: WrittenResults) -> list[EventRow]:
        """Return the rows of the durable events. `results` are those of the current turns."""
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
                    if written and isinstance(body, ToolsEnded) and any(body_sources := find_sources(body, written)):
                        sources[index] = body_sources
                        body = remainder(body, body_sources)
                encoded.append(encode(body))
            if redact is not None:
                starts = range(0, len(encoded), _REDACTED_BODIES)
                encoded = [
                    clean for start in starts for clean in _redact(encoded[start : start + _REDACTED_BODIES], redact)
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
            if type(body) in LABELLED_EVENTS:
                level, source = label(body)
                if isinstance(body, ToolEnded) and (end := ends.get(index)) is not None:
                    end.written = body.result
            elif index in sources and isinstance(body, ToolsEnded) and isinstance(event.body, ToolsEnded):
                text = with_references(text, sources[index])
                body = completed(event.body, body, sources[index])
            if body is not event.body:
                # Subscribers get this event, and must not see secrets that were removed.
                event = self.events[index] = replace(event, body=body)
            rows.append((event.run_id, event.seq, event.at, body.type, text, level, source))
        return rows


def _redact(encoded: list[Encoded], redact: TextRedactor) -> list[Encoded]:
    """Return the bodies without secrets. One search through all of them is nearly always enough: a secret neither
    crosses the line feed between two bodies nor begins with one."""
    if not redact.suspects(b"\n".join([data for _, data in encoded])):
        return encoded
    clean = [redact.body(body, data) for body, data in encoded]
    return [old if body is old[0] else encode(body) for body, old in zip(clean, encoded, strict=True)]
