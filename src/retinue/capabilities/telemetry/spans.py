"""From the events of the log to spans, live and afterwards.

Ids depend on run, attempt and call only, so that a resumed run, another process and a second export continue the same
trace and name the same spans. Content was redacted before it was written to the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from retinue.core.usage import Usage

SpanKind = Literal["internal", "client"]


class SpanEvent(Struct, frozen=True):
    """A moment within a span."""

    name: str
    at: float
    attributes: Mapping[str, Any]


class TraceSpan(Struct, frozen=True, kw_only=True):
    """One finished span. Times are Unix seconds; `links` are spans of the same trace; `error` is its error type."""

    name: str
    operation: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start: float
    end: float
    attributes: Mapping[str, Any]
    kind: SpanKind = "internal"
    events: tuple[SpanEvent, ...] = ()
    links: tuple[int, ...] = ()
    error: str | None = None
    usage: Usage | None = None

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0.0)


class TraceParent(Struct, frozen=True):
    """The place in a trace that something belongs to."""

    trace_id: int
    span_id: int

    def header(self) -> str:
        """Return it as the header `traceparent`, sampled."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def read_traceparent(text: str) -> TraceParent | None:
    """Return what a `traceparent` header names; None when it is not valid."""
    parts = text.strip().split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return None
    try:
        found = TraceParent(int(parts[1], 16), int(parts[2], 16))
    except ValueError:
        return None
    if found.trace_id == 0 or found.span_id == 0 or parts[0] == "ff":
        return None
    return found


def trace_of(root_id: str) -> int:
    """Return the id of the trace of a tree of runs."""
    return _digest(f"trace {root_id}", 16)


def agent_span(run_id: str, attempt: int) -> int:
    """Return the id of the span of one attempt of a run."""
    return _digest(f"agent {run_id} {attempt}", 8)


def tool_span(run_id: str, call_id: str) -> int:
    """Return the id of the span of a tool call."""
    return _digest(f"tool {run_id} {call_id}", 8)


def event_span(run_id: str, seq: int) -> int:
    """Return the id of a span that begins with the event `seq`."""
    return _digest(f"event {run_id} {seq}", 8)


def _digest(text: str, size: int) -> int:
    # An id of zero is not valid.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
