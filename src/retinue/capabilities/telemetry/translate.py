"""The spans that the events of runs make, each when it ends.

    RunCreated or RunResumed … RunEnded     invoke_agent    one for each attempt of a run
    TurnStarted … AssistantEnded            chat            a request to the model, its retries as events of the span
    ToolStarted … ToolEnded                 execute_tool
    InboxOpened … InboxClosed               retinue.wait    for a person
    RunCreated … RunStarted                 retinue.wait    for a slot, where there was a queue

The span of an agent lies below the tool call that waits for it, or, for one in the background, below the agent that
started it, with a link to the call. An attempt whose process died ends with the last event it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from retinue.capabilities.telemetry import attributes as names
from retinue.capabilities.telemetry.attributes import (
    describe_agent,
    describe_call,
    describe_outcome,
    describe_request,
    describe_retry,
    error_of,
    plain_model,
    shorten,
)
from retinue.capabilities.telemetry.spans import (
    SpanEvent,
    SpanKind,
    TraceParent,
    TraceSpan,
    agent_span,
    event_span,
    read_traceparent,
    tool_span,
    trace_of,
)
from retinue.core import events
from retinue.core.events import Event
from retinue.core.messages import ToolMessage, UserMessage
from retinue.core.usage import Usage

QUEUE_SECONDS = 0.1
"""A shorter wait for a slot is none."""
UNSENT_SECONDS = 10.0
"""Spans that ended so long before their process died may not have been sent: they wait, and sending takes time."""
INTERRUPTED = "interrupted"
HANDLED = (
    events.RunCreated,
    events.RunStarted,
    events.RunResumed,
    events.MessageAdded,
    events.TurnStarted,
    events.TextDelta,
    events.ThinkingDelta,
    events.Retrying,
    events.AssistantEnded,
    events.ToolStarted,
    events.ToolEnded,
    events.ToolsEnded,
    events.InboxOpened,
    events.InboxClosed,
    events.LimitReached,
    events.Compacted,
    events.RunEnded,
)


class OpenSpan(Struct):
    """What has begun and not ended. `above` is the span it lies in, 0 for none."""

    id: int
    at: float
    body: Any
    above: int
    events: list[SpanEvent] = field(default_factory=list)
    first_chunk: float | None = None


class TracedRun(Struct):
    """What is known of one run while its events come."""

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
    """What the model has not answered yet; kept only where content is sent."""
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
    were written before: it is asked for a run whose beginning was not taken."""

    def __init__(self, recall: Callable[[str], Iterable[Event]], *, content: bool = False) -> None:
        self._recall = recall
        self._content = content
        self._runs: dict[str, TracedRun] = {}

    def take(self, event: Event) -> list[TraceSpan]:
        """Return the spans that end with this event, and those that a process which died may not have sent."""
        if not isinstance(event.body, HANDLED):
            return []
        unsent: list[TraceSpan] = []
        run = self._runs.get(event.run_id) or self._begin(event, unsent)
        if run is None:
            return []
        found = self._step(run, event)
        run.last_at = event.at
        if isinstance(event.body, events.RunEnded):
            del self._runs[event.run_id]
        return unsent + found

    def cut_off(self) -> list[TraceSpan]:
        """Return the spans of runs that did not end: their process died."""
        found: list[TraceSpan] = []
        for run in self._runs.values():
            found += self._interrupt(run)
        self._runs.clear()
        return found

    # The beginning of a run

    def _begin(self, event: Event, unsent: list[TraceSpan]) -> TracedRun | None:
        """Return the state of a run before `event`; from the log where it began earlier."""
        if isinstance(event.body, events.RunCreated):
            return self._add(event, event.body)
        run = self._rebuild(event.run_id, event.seq, unsent)
        if run is None or run.agent is None or not isinstance(event.body, events.RunResumed):
            unsent.clear()
        else:
            # Those that were sent come again under the same ids.
            unsent[:] = [span for span in unsent if span.end >= run.last_at - UNSENT_SECONDS]
        return run

    def _rebuild(
        self, run_id: str, before: int | None = None, ended: list[TraceSpan] | None = None
    ) -> TracedRun | None:
        """Return a run as its events in the log leave it. Put what ended with them into `ended`."""
        run = self._runs.get(run_id)
        for event in self._recall(run_id):
            if before is not None and event.seq >= before:
                break
            if isinstance(event.body, events.RunCreated):
                run = self._add(event, event.body)
            if run is not None and isinstance(event.body, HANDLED):
                spans = self._step(run, event)
                run.last_at = event.at
                if ended is not None:
                    ended += spans
        return run

    def _add(self, event: Event, created: events.RunCreated) -> TracedRun:
        trace_id, above, links = self._place(event, created)
        run = TracedRun(event.run_id, event.parent_id, event.root_id, created, trace_id, above, links)
        self._runs[event.run_id] = run
        return run

    def _place(self, event: Event, created: events.RunCreated) -> tuple[int, int, tuple[int, ...]]:
        """Return the trace of a run, the span above it, and the spans it is linked to."""
        if event.parent_id is None:
            asked = created.options.asked
            given = read_traceparent(str(asked.get("traceparent", ""))) or TraceParent(trace_of(event.root_id), 0)
            return given.trace_id, given.span_id, ()
        parent = self._runs.get(event.parent_id)
        if parent is None:
            parent = self._rebuild(event.parent_id)
        if parent is None:
            return trace_of(event.root_id), 0, ()
        call_id = created.options.call_id
        if call_id is None:
            return parent.trace_id, parent.span_id, ()
        call = tool_span(parent.id, str(call_id))
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
            case events.RunEnded() as body:
                return self._end_attempt(run, event.at, body)
            case _:
                self._notice(run, event)
                return []

    def _notice(self, run: TracedRun, event: Event) -> None:
        """Take an event that ends nothing."""
        match event.body:
            case events.MessageAdded(message) | events.ToolsEnded(message):
                if self._content:
                    run.given.append(message)
            case events.TurnStarted() as body:
                run.turn = OpenSpan(event_span(run.id, event.seq), event.at, body, run.span_id)
            case events.TextDelta() | events.ThinkingDelta() if run.turn is not None:
                run.turn.first_chunk = run.turn.first_chunk or event.at
            case events.Retrying() as body if run.turn is not None:
                run.turn.events.append(SpanEvent("model.retrying", event.at, describe_retry(body)))
            case events.ToolStarted() as body:
                run.tools[body.call.id] = OpenSpan(tool_span(run.id, body.call.id), event.at, body, run.span_id)
            case events.InboxOpened() as body:
                above = run.span_id
                if body.call_id in run.tools:
                    above = tool_span(run.id, body.call_id)
                run.asks[body.item_id] = OpenSpan(event_span(run.id, event.seq), event.at, body, above)
            case events.LimitReached() as body:
                run.note("retinue.limit", event.at, {names.LIMIT: body.limit})
            case events.Compacted() as body:
                shorter = {"retinue.tokens.before": body.tokens_before, "retinue.tokens.after": body.tokens_after}
                run.note("retinue.compacted", event.at, shorter)

    def _start_attempt(self, run: TracedRun, event: Event) -> list[TraceSpan]:
        left = self._interrupt(run)
        run.attempt += 1
        run.agent = OpenSpan(run.span_id, event.at, event.body, run.above)
        return left

    def _wait_in_queue(self, run: TracedRun, event: Event) -> list[TraceSpan]:
        if run.agent is None or event.at - run.agent.at < QUEUE_SECONDS:
            return []
        begun = OpenSpan(event_span(run.id, event.seq), run.agent.at, event.body, run.span_id)
        return [_end(run, begun, event.at, "retinue.wait", "wait", {names.WAIT_FOR: "slot"})]

    def _end_turn(self, run: TracedRun, at: float, body: events.AssistantEnded) -> list[TraceSpan]:
        begun, run.turn = run.turn, None
        given, run.given = run.given, []
        if begun is None:
            return []
        message = body.message
        attributes = describe_request(run.created.model, given, message, content=self._content)
        if begun.first_chunk is not None:
            attributes[names.FIRST_CHUNK] = begun.first_chunk - begun.at
        error: str | None = None
        if message.failure is not None:
            error = message.failure.kind
        name = f"chat {plain_model(run.created.model)}"
        return [_end(run, begun, at, name, "chat", attributes, kind="client", error=error, usage=message.usage)]

    def _end_tool(self, run: TracedRun, at: float, body: events.ToolEnded) -> list[TraceSpan]:
        begun = run.tools.pop(body.call_id, None)
        if begun is None:
            return []
        attributes = describe_call(begun.body.call, body.result.text, content=self._content)
        error: str | None = None
        if body.result.is_error:
            error = "tool_error"
        return [_end(run, begun, at, f"execute_tool {body.name}", "execute_tool", attributes, error=error)]

    def _end_ask(self, run: TracedRun, at: float, body: events.InboxClosed) -> list[TraceSpan]:
        begun = run.asks.pop(body.item_id, None)
        if begun is None:
            return []
        attributes = {
            names.WAIT_FOR: "person",
            names.INBOX_KIND: begun.body.kind,
            names.INBOX_CHOICE: shorten(body.choice or body.state),
            names.INBOX_BY: body.by,
        }
        return [_end(run, begun, at, "retinue.wait", "wait", attributes)]

    def _end_attempt(self, run: TracedRun, at: float, body: events.RunEnded) -> list[TraceSpan]:
        if run.agent is None:
            return []
        outcome = body.outcome
        attributes = describe_outcome(outcome, content=self._content)
        return [self._end_agent(run, at, attributes, error_of(outcome), outcome.usage)]

    def _interrupt(self, run: TracedRun) -> list[TraceSpan]:
        """End what a process that died has left open."""
        if run.agent is None:
            return []
        found = []
        for begun in run.tools.values():
            call = begun.body.call
            attributes = describe_call(call, None, content=self._content)
            name = f"execute_tool {call.name}"
            found.append(_end(run, begun, run.last_at, name, "execute_tool", attributes, error=INTERRUPTED))
        found.append(self._end_agent(run, run.last_at, {names.ENDED: INTERRUPTED}, INTERRUPTED, None))
        run.tools.clear()
        run.asks.clear()
        return found

    def _end_agent(
        self, run: TracedRun, at: float, attributes: Mapping[str, Any], error: str | None, usage: Usage | None
    ) -> TraceSpan:
        assert run.agent is not None
        whole = {**describe_agent(run.id, run.attempt, run.created, content=self._content), **attributes}
        name = f"invoke_agent {run.created.agent}"
        span = _end(run, run.agent, at, name, "invoke_agent", whole, error=error, usage=usage, links=run.links)
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
    kind: SpanKind = "internal",
    error: str | None = None,
    usage: Usage | None = None,
    links: tuple[int, ...] = (),
) -> TraceSpan:
    whole: dict[str, Any] = {
        names.OPERATION: operation,
        names.CONVERSATION: run.root_id,
        names.SESSION: run.root_id,
        names.RUN_ID: run.id,
        names.ROOT_ID: run.root_id,
        **attributes,
    }
    if run.parent_id is not None:
        whole[names.PARENT_ID] = run.parent_id
    if error is not None:
        whole[names.ERROR_TYPE] = error
    return TraceSpan(
        name=name,
        operation=operation,
        trace_id=run.trace_id,
        span_id=begun.id,
        parent_id=begun.above or None,
        start=begun.at,
        end=max(at, begun.at),
        attributes=whole,
        kind=kind,
        events=tuple(begun.events),
        links=links,
        error=error,
        usage=usage,
    )
