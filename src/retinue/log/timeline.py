"""The timeline of a tree of runs: time in the queue, requests, tools, waits for people, retries, limits.

Every span lies between two events of the log. A span that still lasts has no end. If a process died or a run was
stopped during a span, it ends with the last event of the run.
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
# The key and the name of an event are those of its call, inbox item, turn, failure or limit.
_SPAN_KEY = (
    "coalesce(json_extract(body, '$.call.id'), json_extract(body, '$.call_id'), json_extract(body, '$.item_id'), '')"
)
_SPAN_NAME = """coalesce(json_extract(body, '$.call.name'), json_extract(body, '$.title'), json_extract(body, '$.turn'),
    json_extract(body, '$.failure.message'), json_extract(body, '$.detail'), '')"""


class Span(Struct, frozen=True):
    """A span of time of a run, in Unix seconds. Without `end` it still lasts. `seq` is the event with which it began. A
    span of the kind `limit` ends when it begins."""

    kind: SpanKind
    start: float
    end: float | None
    label: str
    detail: str = ""
    failed: bool = False
    seq: int = 0


class RunSpans(Struct, frozen=True):
    """The spans of one run, in the order of their beginnings. `cut`: some are left out."""

    run_id: str
    spans: list[Span]
    cut: bool = False


def read_timeline(reader: LogReader, states: dict[str, str]) -> list[RunSpans]:
    """Return the spans of these runs. `states` has their present states by id."""
    timeline = []
    remaining = _MAX_SPANS
    for run_id, state in states.items():
        spans, is_cut = _read_spans(reader, run_id, remaining, live=state in LIVE)
        timeline.append(RunSpans(run_id, spans, is_cut))
        remaining = max(remaining - len(spans), 1)
    return timeline


def _read_spans(reader: LogReader, run_id: str, limit: int, *, live: bool) -> tuple[list[Span], bool]:
    """Return the spans of a run, and whether it has more events than `limit`."""
    marks = ", ".join("?" * len(_SPAN_EVENTS))
    query = f"""SELECT seq, at, type, {_SPAN_KEY}, {_SPAN_NAME}, substr(coalesce({_DETAIL}, ''), 1, 120),
        json_extract(body, '$.result.is_error'), json_extract(body, '$.message.failure.kind'),
        json_extract(body, '$.delay'), json_extract(body, '$.item_id')
        FROM events WHERE run_id=? AND type IN ({marks}) ORDER BY seq LIMIT ?"""  # noqa: S608 - our own words
    rows = reader.select(query, (run_id, *_SPAN_EVENTS, limit))
    spans: list[Span] = []
    unended: dict[tuple[SpanKind, str], Span] = {}
    at: float = 0.0
    for seq, at, event, key, name, detail, is_error, failure, delay, item in rows:
        # Spans of one kind can overlap: calls of tools are identified by their ids, waits by their inbox items.
        keys = {"tool": str(key), "person": str(item)}
        if event in _SPAN_BEGINNINGS:
            kind, title = _SPAN_BEGINNINGS[event]
            unended[kind, keys.get(kind, "")] = Span(kind, at, None, title.format(name), str(detail), seq=seq)
        elif event in _SPAN_ENDS:
            kind = _SPAN_ENDS[event]
            span = unended.pop((kind, keys.get(kind, "")), None)
            if span is not None:
                # PostgreSQL returns every value as text.
                failed = failure is not None or str(is_error) in ("1", "true")
                spans.append(replace(span, end=at, failed=failed))
        elif event in _MOMENTS:
            spans.append(Span(_MOMENTS[event], at, at + float(delay or 0), str(name), seq=seq))
        else:
            spans += [replace(span, end=at) for span in unended.values()]
            unended.clear()
    spans += [replace(span, end=None if live else at) for span in unended.values()]
    return sorted(spans, key=lambda span: (span.start, span.seq)), len(rows) == limit


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
