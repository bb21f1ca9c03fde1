"""The spans of runs, translated from their events. A span is sent when it ends.

    RunCreated or RunResumed … RunEnded     invoke_agent    one for each attempt of a run
    TurnStarted … AssistantEnded            chat            a request to the model, its retries as events of the span
    ToolStarted … ToolEnded                 execute_tool
    InboxOpened … InboxClosed               retinue.wait    for a person
    RunCreated … RunStarted                 retinue.wait    for a slot, where there was a queue

The span of an agent lies below the tool call that waits for it, or, for one in the background, below the agent that
started it, with a link to the call. An attempt whose process died ends with the last event it wrote.

Ids are computed from run, attempt and call only. So a resumed run, another process and a second export continue the
same trace and name the same spans. Content was redacted before it was written to the log.
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
"""Shorter waits for a slot get no span."""
UNSENT_SECONDS = 10.0
"""Spans that ended within this time before their process died may not have been sent: batches are sent every few
seconds."""
INTERRUPTED = "interrupted"


class SpanEvent(Struct, frozen=True):
    """An event at one moment of a span."""

    name: str
    at: float
    attributes: Mapping[str, Any]


class TraceSpan(Struct, kw_only=True):
    """One span, open until `end` is set. Times are Unix seconds; `links` are spans of the same trace."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start: float
    attributes: dict[str, Any]
    end: float = 0.0
    events: list[SpanEvent] = field(default_factory=list)
    links: tuple[int, ...] = ()

    @property
    def operation(self) -> str:
        return str(self.attributes[names.OPERATION])

    @property
    def error(self) -> str | None:
        """The error type of a span that failed."""
        error: str | None = self.attributes.get(names.ERROR_TYPE)
        return error

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def close(self, at: float, attributes: Mapping[str, Any], error: str | None = None) -> TraceSpan:
        """End the span and return it."""
        self.end = max(at, self.start)
        self.attributes |= attributes
        if error is not None:
            self.attributes[names.ERROR_TYPE] = error
        return self


class TraceParent(Struct, frozen=True):
    """A span of a trace, as the W3C header `traceparent` names it."""

    trace_id: int
    span_id: int

    def header(self) -> str:
        """Return the value of the header, with the flag that the trace is sampled."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def read_traceparent(text: str) -> TraceParent | None:
    """Parse a `traceparent` header; None when it is not valid."""
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


class TracedRun(Struct):
    """The state of one run while its events are translated. `parent_id` is the span above that of the agent, and
    `attributes` are those of all its spans."""

    id: str
    created: events.RunCreated
    trace_id: int
    parent_id: int | None
    links: tuple[int, ...]
    attributes: Mapping[str, Any]
    attempt: int = 0
    agent: TraceSpan | None = None
    turn: TraceSpan | None = None
    calls: dict[str, TraceSpan] = field(default_factory=dict)
    questions: dict[str, TraceSpan] = field(default_factory=dict)
    unanswered: list[UserMessage | ToolMessage] = field(default_factory=list)
    """Messages that the model has not answered yet, where content is sent."""
    last_at: float = 0.0

    @property
    def span_id(self) -> int:
        """The id of the span of the current attempt."""
        return agent_span(self.id, max(self.attempt, 1))

    def begin(
        self, operation: str, name: str, span_id: int, at: float, attributes: Mapping[str, Any], parent_id: int | None
    ) -> TraceSpan:
        """Return a new open span."""
        return TraceSpan(
            name=name,
            trace_id=self.trace_id,
            span_id=span_id,
            parent_id=parent_id,
            start=at,
            attributes={names.OPERATION: operation, **self.attributes, **attributes},
        )

    def add_event(self, name: str, at: float, attributes: Mapping[str, Any]) -> None:
        """Add an event to the span of the agent."""
        if self.agent is not None:
            self.agent.events.append(SpanEvent(name, at, attributes))


class SpanTranslator:
    """Translates the events of any number of runs, those of each run in order. `earlier_events` returns the events of a
    run that are in the log already: it is called for a run that is resumed."""

    def __init__(self, earlier_events: Callable[[str], Iterable[Event]], *, content: bool = False) -> None:
        self._earlier_events = earlier_events
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
                # A span that was sent before is sent again under the same id.
                unsent = [span for span in spans if span.end >= run.last_at - UNSENT_SECONDS]
        if run is None:
            return []
        ended = self._translate(run, event)
        run.last_at = event.at
        if isinstance(event.body, events.RunEnded):
            del self._runs[event.run_id]
        return unsent + ended

    def end_interrupted(self) -> list[TraceSpan]:
        """Return the spans of runs that did not end because their process died."""
        spans: list[TraceSpan] = []
        for run in self._runs.values():
            spans += self._interrupt(run)
        self._runs.clear()
        return spans

    # The beginning of a run

    def _rebuild(self, run_id: str, before: float = math.inf) -> tuple[TracedRun | None, list[TraceSpan]]:
        """Return the state of a run after its events in the log, and the spans that ended with them."""
        run = self._runs.get(run_id)
        spans: list[TraceSpan] = []
        for event in self._earlier_events(run_id):
            if event.seq >= before:
                break
            if isinstance(event.body, events.RunCreated):
                run = self._add(event, event.body)
            if run is not None:
                spans += self._translate(run, event)
                run.last_at = event.at
        return run, spans

    def _add(self, event: Event, created: events.RunCreated) -> TracedRun:
        attributes = {
            "gen_ai.conversation.id": event.root_id,
            "session.id": event.root_id,
            "retinue.run.id": event.run_id,
            "retinue.root.id": event.root_id,
        }
        if event.parent_id is not None:
            attributes["retinue.parent.id"] = event.parent_id
        trace_id, parent_id, links = self._place(event, created)
        run = TracedRun(event.run_id, created, trace_id, parent_id, links, attributes)
        self._runs[event.run_id] = run
        return run

    def _place(self, event: Event, created: events.RunCreated) -> tuple[int, int | None, tuple[int, ...]]:
        """Return the trace of a run, the span above it, and the spans it is linked to."""
        if event.parent_id is None:
            caller = read_traceparent(str(created.options.asked.get("traceparent", "")))
            if caller is not None:
                return caller.trace_id, caller.span_id, ()
            return trace_of(event.root_id), None, ()
        parent = self._runs.get(event.parent_id) or self._rebuild(event.parent_id)[0]
        if parent is None:
            return trace_of(event.root_id), None, ()
        if created.options.call_id is None:
            return parent.trace_id, parent.span_id, ()
        call = tool_span(parent.id, str(created.options.call_id))
        if created.options.background:
            return parent.trace_id, parent.span_id, (call,)
        return parent.trace_id, call, ()

    # One event

    def _translate(self, run: TracedRun, event: Event) -> list[TraceSpan]:
        """Return the spans that end with this event."""
        match event.body:
            case events.RunCreated() | events.RunResumed():
                return self._start_attempt(run, event.at)
            case events.RunStarted():
                return self._end_queue(run, event)
            case events.AssistantEnded() as body:
                return self._end_turn(run, event.at, body)
            case events.ToolEnded(call_id=call_id) as body if call_id in run.calls:
                attributes = names.describe_result(body.result.text, content=self._content)
                error = "tool_error" if body.result.is_error else None
                return [run.calls.pop(call_id).close(event.at, attributes, error)]
            case events.InboxClosed(item_id=item_id) as body if item_id in run.questions:
                choice = names.shorten(body.choice or body.state)
                attributes = {"retinue.inbox.choice": choice, "retinue.inbox.by": body.by}
                return [run.questions.pop(item_id).close(event.at, attributes)]
            case events.RunEnded(outcome) if run.agent is not None:
                attributes = names.describe_outcome(outcome, content=self._content)
                return [self._end_agent(run, run.agent, event.at, attributes, names.error_of(outcome))]
            case _:
                self._update(run, event)
                return []

    def _update(self, run: TracedRun, event: Event) -> None:
        """Take an event that ends no span."""
        match event.body:
            case events.TextDelta() | events.ThinkingDelta() if run.turn is not None:
                run.turn.attributes.setdefault(names.FIRST_CHUNK, event.at - run.turn.start)
            case events.MessageAdded(message) | events.ToolsEnded(message) if self._content:
                run.unanswered.append(message)
            case events.TurnStarted():
                name = f"chat {names.plain_model(run.created.model)}"
                run.turn = run.begin("chat", name, event_span(run.id, event.seq), event.at, {}, run.span_id)
            case events.Retrying() as body if run.turn is not None:
                run.turn.events.append(SpanEvent("model.retrying", event.at, names.describe_retry(body)))
            case events.ToolStarted(call=call):
                attributes = names.describe_call(call, content=self._content)
                name, span_id = f"execute_tool {call.name}", tool_span(run.id, call.id)
                run.calls[call.id] = run.begin("execute_tool", name, span_id, event.at, attributes, run.span_id)
            case events.InboxOpened() as body:
                parent_id = tool_span(run.id, body.call_id) if body.call_id in run.calls else run.span_id
                attributes = {names.WAIT_FOR: "person", "retinue.inbox.kind": body.kind}
                span_id = event_span(run.id, event.seq)
                run.questions[body.item_id] = run.begin(
                    "wait", "retinue.wait", span_id, event.at, attributes, parent_id
                )
            case events.LimitReached() as body:
                run.add_event("retinue.limit", event.at, {names.LIMIT_NAME: body.limit})
            case events.Compacted() as body:
                tokens = {"retinue.tokens.before": body.tokens_before, "retinue.tokens.after": body.tokens_after}
                run.add_event("retinue.compacted", event.at, tokens)

    def _start_attempt(self, run: TracedRun, at: float) -> list[TraceSpan]:
        interrupted = self._interrupt(run)
        run.attempt += 1
        attributes = names.describe_agent(run.id, run.attempt, run.created, content=self._content)
        name = f"invoke_agent {run.created.agent}"
        run.agent = run.begin("invoke_agent", name, run.span_id, at, attributes, run.parent_id)
        run.agent.links = run.links
        return interrupted

    def _end_queue(self, run: TracedRun, event: Event) -> list[TraceSpan]:
        if run.agent is None or event.at - run.agent.start < QUEUE_SECONDS:
            return []
        span_id, attributes = event_span(run.id, event.seq), {names.WAIT_FOR: "slot"}
        return [
            run.begin("wait", "retinue.wait", span_id, run.agent.start, attributes, run.span_id).close(event.at, {})
        ]

    def _end_turn(self, run: TracedRun, at: float, body: events.AssistantEnded) -> list[TraceSpan]:
        turn, run.turn = run.turn, None
        messages, run.unanswered = run.unanswered, []
        if turn is None:
            return []
        message = body.message
        attributes = names.describe_request(run.created.model, messages, message, content=self._content)
        return [turn.close(at, attributes, None if message.failure is None else message.failure.kind)]

    def _interrupt(self, run: TracedRun) -> list[TraceSpan]:
        """End the spans that a process which died left open."""
        if run.agent is None:
            return []
        spans = [call.close(run.last_at, {}, INTERRUPTED) for call in run.calls.values()]
        spans.append(self._end_agent(run, run.agent, run.last_at, {names.ENDED: INTERRUPTED}, INTERRUPTED))
        run.calls.clear()
        run.questions.clear()
        return spans

    def _end_agent(
        self, run: TracedRun, agent: TraceSpan, at: float, attributes: Mapping[str, Any], error: str | None
    ) -> TraceSpan:
        run.agent = run.turn = None
        return agent.close(at, attributes, error)
