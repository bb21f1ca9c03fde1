"""When each run of a tree did what: time in the queue, requests, tools, waits for people, retries, limits.

Every span is between two events that the log has anyway. One that is still going on has no end. Of a run whose process
died, or that was stopped in the middle, it ends with the last event of its run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.delegation import LIVE

if TYPE_CHECKING:
    from retinue.log.query import LogReader

SpanKind = Literal["queue", "model", "tool", "person", "retry", "limit"]
_MAX_SPANS = 20_000

_SPAN_EVENTS = (
    "run.created",
    "run.started",
    "run.resumed",
    "turn.started",
    "assistant.ended",
    "tool.started",
    "tool.ended",
    "inbox.opened",
    "inbox.closed",
    "model.retrying",
    "limit.reached",
    "run.ended",
)
_ARGUMENTS = ("command", "path", "description", "pattern", "query", "url", "prompt")
_DETAIL = ", ".join(f"json_extract(body, '$.call.arguments.{name}')" for name in _ARGUMENTS)
# What each type of event is called by: the call, the item, the turn, the failure or the limit.
_SPAN_KEY = (
    "coalesce(json_extract(body, '$.call.id'), json_extract(body, '$.call_id'), json_extract(body, '$.item_id'), '')"
)
_SPAN_NAME = """coalesce(json_extract(body, '$.call.name'), json_extract(body, '$.title'), json_extract(body, '$.turn'),
    json_extract(body, '$.failure.message'), json_extract(body, '$.detail'), '')"""


class Span(Struct, frozen=True):
    """Something that took time. Times are Unix seconds; without `end` it is still going on. `seq` is the event with
    which it began. `limit` is a moment: it begins and ends at once."""

    kind: SpanKind
    start: float
    end: float | None
    label: str
    detail: str = ""
    failed: bool = False
    seq: int = 0


class RunSpans(Struct, frozen=True):
    """What one run did when, in the order of beginnings. `cut` says that there is more than is listed."""

    run_id: str
    spans: list[Span]
    cut: bool = False


class _Row(Struct, frozen=True):
    seq: int
    at: float
    type: str
    key: str
    name: str
    detail: str
    bad: bool
    delay: float
    item: str


def read_timeline(reader: LogReader, states: dict[str, str]) -> list[RunSpans]:
    """Return the spans of these runs. `states` has the state of each by its id, as seen now."""
    timeline = []
    room = _MAX_SPANS
    for run_id, state in states.items():
        rows = _rows(reader, run_id, room)
        spans = _spans(rows, live=state in LIVE)
        timeline.append(RunSpans(run_id, spans, cut=len(rows) == room))
        room = max(room - len(spans), 1)
    return timeline


def _rows(reader: LogReader, run_id: str, limit: int) -> list[_Row]:
    marks = ", ".join("?" * len(_SPAN_EVENTS))
    query = f"""SELECT seq, at, type, {_SPAN_KEY}, {_SPAN_NAME}, substr(coalesce({_DETAIL}, ''), 1, 120),
        json_extract(body, '$.result.is_error'), json_extract(body, '$.message.failure.kind'),
        json_extract(body, '$.delay'), json_extract(body, '$.item_id')
        FROM events WHERE run_id=? AND type IN ({marks}) ORDER BY seq LIMIT ?"""  # noqa: S608 - our own words
    rows = []
    values = (run_id, *_SPAN_EVENTS, limit)
    for seq, at, kind, key, name, detail, is_error, failure, delay, item in reader.select(query, values):
        # PostgreSQL gives every value as text.
        bad = failure is not None or str(is_error) in ("1", "true")
        rows.append(_Row(seq, at, kind, str(key), str(name), str(detail), bad, float(delay or 0), str(item or "")))
    return rows


_SPAN_BEGINNINGS: dict[str, tuple[SpanKind, str]] = {
    "run.created": ("queue", "queued"),
    "run.resumed": ("queue", "queued"),
    "turn.started": ("model", "turn {}"),
    "tool.started": ("tool", "{}"),
    "inbox.opened": ("person", "{}"),
}
_SPAN_ENDS: dict[str, SpanKind] = {
    "run.started": "queue",
    "assistant.ended": "model",
    "tool.ended": "tool",
    "inbox.closed": "person",
}
_MOMENTS: dict[str, SpanKind] = {"model.retrying": "retry", "limit.reached": "limit"}


def _key(kind: SpanKind, row: _Row) -> str:
    """Return what tells spans of one kind apart that overlap: tools by their call, waits by what is asked."""
    if kind == "tool":
        return row.key
    return row.item if kind == "person" else ""


def _spans(rows: list[_Row], *, live: bool) -> list[Span]:
    spans: list[Span] = []
    unended: dict[tuple[SpanKind, str], Span] = {}

    def end_all(at: float | None) -> None:
        spans.extend(replace(span, end=at) for span in unended.values())
        unended.clear()

    for row in rows:
        if row.type in _SPAN_BEGINNINGS:
            kind, title = _SPAN_BEGINNINGS[row.type]
            unended[kind, _key(kind, row)] = Span(kind, row.at, None, title.format(row.name), row.detail, seq=row.seq)
        elif row.type in _SPAN_ENDS:
            kind = _SPAN_ENDS[row.type]
            span = unended.pop((kind, _key(kind, row)), None)
            if span is not None:
                spans.append(replace(span, end=row.at, failed=row.bad))
        elif row.type in _MOMENTS:
            spans.append(Span(_MOMENTS[row.type], row.at, row.at + row.delay, row.name, seq=row.seq))
        else:
            end_all(row.at)
    end_all(None if live or not rows else rows[-1].at)
    return sorted(spans, key=lambda span: (span.start, span.seq))
