"""The events of one hand-over to the writer, as the rows that go into the file: encoded, without secrets."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import encode
from retinue.core.events import TRANSIENT, Body, Event, RunEnded, ToolEnded, ToolsEnded
from retinue.log.stream_redactor import TextRedactor
from retinue.log.tool_results import Sources, WrittenResult, WrittenResults, completed, remainder, with_places
from retinue.log.troubles import LABELLED, label

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
