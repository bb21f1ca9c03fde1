"""The spans that the events of runs make, each when it ends.

    RunCreated or RunResumed … RunEnded     invoke_agent    one for each attempt of a run
    TurnStarted … AssistantEnded            chat            a request to the model, its retries as events of the span
    ToolStarted … ToolEnded                 execute_tool
    InboxOpened … InboxClosed               retinue.wait    for a person
    RunCreated … RunStarted                 retinue.wait    for a slot, where there was a queue

The span of an agent lies below the tool call that waits for it, or, for one in the background, below the agent that
started it, with a link to the call. An attempt whose process died ends with the last event it wrote.

Ids depend on run, attempt and call only, so that a resumed run, another process and a second export continue the same
trace and name the same spans. Content was redacted before it was written to the log.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from retinue.capabilities.telemetry import attributes as names
from retinue.core import events
from retinue.core.events import Event
from retinue.core.messages import ToolMessage, UserMessage

QUEUE_SECONDS = 0.1
"""A shorter wait for a slot is none."""
UNSENT_SECONDS = 10.0
"""Spans that ended so long before their process died may not have been sent: they wait, and sending takes time."""
INTERRUPTED = "interrupted"


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
    events: tuple[SpanEvent, ...] = ()
    links: tuple[int, ...] = ()
    error: str | None = None

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
    if len(parts) < 4 or list(map(len, parts[:4])) != [2, 32, 16, 2]:
        return None
    try:
        parent = TraceParent(int(parts[1], 16), int(parts[2], 16))
    except ValueError:
        return None
    if parent.trace_id == 0 or parent.span_id == 0 or parts[0] == "ff":
        return None
    return parent


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


class OpenSpan(Struct):
    """A span that has not ended. `above` is its parent span, 0 for none."""

    id: int
    at: float
    body: Any
    above: int
    events: list[SpanEvent] = field(default_factory=list)
    first_chunk: float | None = None


class TracedRun(Struct):
    """The state of one run while its events come."""

    id: str
    parent_id: str | None
    root_id: str
    created: events.RunCreated
    trace_id: int
    above: int
    links: tuple[int, ...] = ()
    attempt: int = 0
    agent: OpenSpan | None = None
    turn: OpenSpan | None = None
    tools: dict[str, OpenSpan] = field(default_factory=dict)
    asks: dict[str, OpenSpan] = field(default_factory=dict)
    given: list[UserMessage | ToolMessage] = field(default_factory=list)
    """Messages that the model has not answered yet; kept only where content is sent."""
    last_at: float = 0.0

    @property
    def span_id(self) -> int:
        """The span of the attempt that is going on."""
        return agent_span(self.id, max(self.attempt, 1))

    def note(self, name: str, at: float, attributes: Mapping[str, Any]) -> None:
        if self.agent is not None:
            self.agent.events.append(SpanEvent(name, at, attributes))


class SpanTranslator:
    """Takes the events of any number of runs, those of each run in order. `recall` returns the events of a run that
    were written before: it is asked for a run that is resumed."""

    def __init__(self, recall: Callable[[str], Iterable[Event]], *, content: bool = False) -> None:
        self._recall = recall
        self._content = content
        self._runs: dict[str, TracedRun] = {}

    def take(self, event: Event) -> list[TraceSpan]:
        """Return the spans that end with this event, and those that a process which died may not have sent."""
        unsent: list[TraceSpan] = []
        run = self._runs.get(event.run_id)
        if run is None and isinstance(event.body, events.RunCreated):
            run = self._add(event, event.body)
        elif run is None and isinstance(event.body, events.RunResumed):
            run, spans = self._rebuild(event.run_id, event.seq)
            if run is not None and run.agent is not None:
                # Those that were sent come again under the same ids.
                unsent = [span for span in spans if span.end >= run.last_at - UNSENT_SECONDS]
        if run is None:
            return []
        ended = self._step(run, event)
        run.last_at = event.at
        if isinstance(event.body, events.RunEnded):
            del self._runs[event.run_id]
        return unsent + ended

    def cut_off(self) -> list[TraceSpan]:
        """Return the spans of runs that did not end: their process died."""
        spans: list[TraceSpan] = []
        for run in self._runs.values():
            spans += self._interrupt(run)
        self._runs.clear()
        return spans

    # The beginning of a run

    def _rebuild(self, run_id: str, before: float = math.inf) -> tuple[TracedRun | None, list[TraceSpan]]:
        """Return a run as its events in the log leave it, and the spans that ended with them."""
        run = self._runs.get(run_id)
        spans: list[TraceSpan] = []
        for event in self._recall(run_id):
            if event.seq >= before:
                break
            if isinstance(event.body, events.RunCreated):
                run = self._add(event, event.body)
            if run is not None:
                spans += self._step(run, event)
                run.last_at = event.at
        return run, spans

    def _add(self, event: Event, created: events.RunCreated) -> TracedRun:
        trace_id, above, links = self._place(event, created)
        run = TracedRun(event.run_id, event.parent_id, event.root_id, created, trace_id, above, links)
        self._runs[event.run_id] = run
        return run

    def _place(self, event: Event, created: events.RunCreated) -> tuple[int, int, tuple[int, ...]]:
        """Return the trace of a run, the span above it, and the spans it is linked to."""
        if event.parent_id is None:
            header = str(created.options.asked.get("traceparent", ""))
            above = read_traceparent(header) or TraceParent(trace_of(event.root_id), 0)
            return above.trace_id, above.span_id, ()
        parent = self._runs.get(event.parent_id) or self._rebuild(event.parent_id)[0]
        if parent is None:
            return trace_of(event.root_id), 0, ()
        if created.options.call_id is None:
            return parent.trace_id, parent.span_id, ()
        call = tool_span(parent.id, str(created.options.call_id))
        if created.options.background:
            return parent.trace_id, parent.span_id, (call,)
        return parent.trace_id, call, ()

    # One event

    def _step(self, run: TracedRun, event: Event) -> list[TraceSpan]:
        match event.body:
            case events.RunCreated() | events.RunResumed():
                return self._start_attempt(run, event)
            case events.RunStarted():
                return self._wait_in_queue(run, event)
            case events.AssistantEnded() as body:
                return self._end_turn(run, event.at, body)
            case events.ToolEnded() as body:
                return self._end_tool(run, event.at, body)
            case events.InboxClosed() as body:
                return self._end_ask(run, event.at, body)
            case events.RunEnded(outcome) if run.agent is not None:
                attributes = names.describe_outcome(outcome, content=self._content)
                return [self._end_agent(run, event.at, attributes, names.error_of(outcome))]
            case _:
                self._notice(run, event)
                return []

    def _notice(self, run: TracedRun, event: Event) -> None:
        """Take an event that ends nothing."""
        match event.body:
            case events.TextDelta() | events.ThinkingDelta() if run.turn is not None:
                run.turn.first_chunk = run.turn.first_chunk or event.at
            case events.MessageAdded(message) | events.ToolsEnded(message) if self._content:
                run.given.append(message)
            case events.TurnStarted() as body:
                run.turn = OpenSpan(event_span(run.id, event.seq), event.at, body, run.span_id)
            case events.Retrying() as body if run.turn is not None:
                run.turn.events.append(SpanEvent("model.retrying", event.at, names.describe_retry(body)))
            case events.ToolStarted() as body:
                run.tools[body.call.id] = OpenSpan(tool_span(run.id, body.call.id), event.at, body, run.span_id)
            case events.InboxOpened() as body:
                above = tool_span(run.id, body.call_id) if body.call_id in run.tools else run.span_id
                run.asks[body.item_id] = OpenSpan(event_span(run.id, event.seq), event.at, body, above)
            case events.LimitReached() as body:
                run.note("retinue.limit", event.at, {names.LIMIT: body.limit})
            case events.Compacted() as body:
                shorter = {"retinue.tokens.before": body.tokens_before, "retinue.tokens.after": body.tokens_after}
                run.note("retinue.compacted", event.at, shorter)

    def _start_attempt(self, run: TracedRun, event: Event) -> list[TraceSpan]:
        interrupted = self._interrupt(run)
        run.attempt += 1
        run.agent = OpenSpan(run.span_id, event.at, event.body, run.above)
        return interrupted

    def _wait_in_queue(self, run: TracedRun, event: Event) -> list[TraceSpan]:
        if run.agent is None or event.at - run.agent.at < QUEUE_SECONDS:
            return []
        begun = OpenSpan(event_span(run.id, event.seq), run.agent.at, event.body, run.span_id)
        return [_end(run, begun, event.at, "retinue.wait", "wait", {names.WAIT_FOR: "slot"})]

    def _end_turn(self, run: TracedRun, at: float, body: events.AssistantEnded) -> list[TraceSpan]:
        begun, run.turn = run.turn, None
        seen, run.given = run.given, []
        if begun is None:
            return []
        message = body.message
        attributes = names.describe_request(run.created.model, seen, message, content=self._content)
        if begun.first_chunk is not None:
            attributes[names.FIRST_CHUNK] = begun.first_chunk - begun.at
        error = None if message.failure is None else message.failure.kind
        name = f"chat {names.plain_model(run.created.model)}"
        return [_end(run, begun, at, name, "chat", attributes, error=error)]

    def _end_tool(self, run: TracedRun, at: float, body: events.ToolEnded) -> list[TraceSpan]:
        begun = run.tools.pop(body.call_id, None)
        if begun is None:
            return []
        attributes = names.describe_call(begun.body.call, body.result.text, content=self._content)
        error = "tool_error" if body.result.is_error else None
        return [_end(run, begun, at, f"execute_tool {body.name}", "execute_tool", attributes, error=error)]

    def _end_ask(self, run: TracedRun, at: float, body: events.InboxClosed) -> list[TraceSpan]:
        begun = run.asks.pop(body.item_id, None)
        if begun is None:
            return []
        attributes = {
            names.WAIT_FOR: "person",
            "retinue.inbox.kind": begun.body.kind,
            "retinue.inbox.choice": names.shorten(body.choice or body.state),
            "retinue.inbox.by": body.by,
        }
        return [_end(run, begun, at, "retinue.wait", "wait", attributes)]

    def _interrupt(self, run: TracedRun) -> list[TraceSpan]:
        """End what a process that died has left open."""
        if run.agent is None:
            return []
        spans = []
        for begun in run.tools.values():
            call = begun.body.call
            attributes = names.describe_call(call, None, content=self._content)
            name = f"execute_tool {call.name}"
            spans.append(_end(run, begun, run.last_at, name, "execute_tool", attributes, error=INTERRUPTED))
        spans.append(self._end_agent(run, run.last_at, {names.ENDED: INTERRUPTED}, INTERRUPTED))
        run.tools.clear()
        run.asks.clear()
        return spans

    def _end_agent(self, run: TracedRun, at: float, attributes: Mapping[str, Any], error: str | None) -> TraceSpan:
        assert run.agent is not None
        both = {**names.describe_agent(run.id, run.attempt, run.created, content=self._content), **attributes}
        name = f"invoke_agent {run.created.agent}"
        span = _end(run, run.agent, at, name, "invoke_agent", both, error=error, links=run.links)
        run.agent = run.turn = None
        return span


def _end(
    run: TracedRun,
    begun: OpenSpan,
    at: float,
    name: str,
    operation: str,
    attributes: Mapping[str, Any],
    *,
    error: str | None = None,
    links: tuple[int, ...] = (),
) -> TraceSpan:
    common: dict[str, Any] = {
        names.OPERATION: operation,
        "gen_ai.conversation.id": run.root_id,
        "session.id": run.root_id,
        "retinue.run.id": run.id,
        "retinue.root.id": run.root_id,
        **attributes,
    }
    if run.parent_id is not None:
        common["retinue.parent.id"] = run.parent_id
    if error is not None:
        common[names.ERROR_TYPE] = error
    return TraceSpan(
        name=name,
        operation=operation,
        trace_id=run.trace_id,
        span_id=begun.id,
        parent_id=begun.above or None,
        start=begun.at,
        end=max(at, begun.at),
        attributes=common,
        events=tuple(begun.events),
        links=links,
        error=error,
    )
