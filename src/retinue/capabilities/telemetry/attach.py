"""Tracing of the runs of one process: it follows the log and sends the spans that end.

A past run can be exported as well, with the same spans that it would have sent while it worked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.telemetry.collector import TraceCollector
from retinue.capabilities.telemetry.metrics import SpanMetrics
from retinue.capabilities.telemetry.spans import (
    SpanTranslator,
    TraceParent,
    TraceSpan,
    agent_span,
    event_span,
    read_traceparent,
    trace_of,
)
from retinue.core.events import RunCreated
from retinue.http.transport import Transport
from retinue.log.query import LogReader

if TYPE_CHECKING:
    from retinue.core.tool import ToolContext
    from retinue.log.follow import Subscription
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run


TRACEPARENT_VARIABLE = "TRACEPARENT"
BATCH_SPANS = 256
MAX_WAITING_SPANS = 8_192
SEND_INTERVAL_SECONDS = 5.0


class Tracing:
    """Spans and metrics of every run that this process writes to the log. Use from one event loop. Runs never wait for
    the collector: spans are queued while it is slow, and dropped when `MAX_WAITING_SPANS` are queued."""

    def __init__(self, project: Project) -> None:
        project.closing.push_async_callback(self.close)
        content = project.settings.settings.telemetry == "content"
        self._translator = SpanTranslator(project.log.reader.stream, content=content)
        self._collector = TraceCollector(project.environment, project.transport)
        self._metrics = SpanMetrics()
        self._waiting: list[TraceSpan] = []
        self._dropped = 0
        self._failure_reported = False
        self._closing = asyncio.Event()
        self._subscription: Subscription = project.log.subscribe()
        self._following = asyncio.create_task(self._follow(), name="telemetry")
        self._sending = asyncio.create_task(self._send(), name="telemetry sender")

    async def _follow(self) -> None:
        async for event in self._subscription:
            for span in self._translator.take(event):
                self._metrics.count(span)
                if len(self._waiting) < MAX_WAITING_SPANS:
                    self._waiting.append(span)
                else:
                    self._dropped += 1

    async def _send(self) -> None:
        """Send the queued spans every few seconds."""
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), SEND_INTERVAL_SECONDS)
            await self._send_waiting()

    async def _send_waiting(self) -> None:
        batches, sent = 0, self._collector.sent
        while self._waiting:
            batch = self._waiting[:BATCH_SPANS]
            del self._waiting[:BATCH_SPANS]
            await self._collector.send_spans(batch)
            batches += 1
            if self._closing.is_set() and self._collector.sent == sent:
                # The collector accepts nothing: more batches would only delay the end of the program.
                self._dropped += len(self._waiting)
                self._waiting.clear()
            sent = self._collector.sent
        if batches:
            await self._collector.send_metrics(self._metrics.encode())

    def take_failure(self) -> str:
        """Return why spans were lost, on the first call after that; otherwise an empty text."""
        if self._failure_reported or not (self._collector.failure or self._dropped):
            return ""
        self._failure_reported = True
        why = self._collector.failure or "it is too slow"
        return f"Traces could not be sent to {self._collector.endpoint}: {why.rstrip('.')}."

    async def close(self) -> None:
        """Send the remaining spans, for a few seconds at most."""
        self._subscription.close()
        await asyncio.wait({self._following})
        self._closing.set()
        await asyncio.wait({self._sending})
        failure = self.take_failure()
        if failure:
            # The runs have ended already, so none of them can have a note about it.
            logging.getLogger("retinue").warning(failure)


def start_tracing(plan: LaunchPlan) -> None:
    """Follow the log from the first run on. A run that was started within another program's trace continues that
    trace."""
    if plan.preview or not plan.run_id:
        return
    plan.project.part(Tracing)
    request = plan.request
    parent = plan.parent.get(TraceParent) if plan.parent is not None else None
    trace_id = trace_of(plan.run_id)
    attempt = 1
    caller = read_traceparent(plan.project.environment.get(TRACEPARENT_VARIABLE, ""))
    if plan.resumed:
        trace_id, attempt = _find_trace(plan)
    elif parent is not None:
        trace_id = parent.trace_id
    elif caller is not None:
        trace_id = caller.trace_id
        plan.request = replace(request, asked={**request.asked, "traceparent": caller.header()})
    plan.put(TraceParent(trace_id, agent_span(plan.run_id, attempt)))


def _find_trace(plan: LaunchPlan) -> tuple[int, int]:
    """Return the trace of a run that is resumed, and the number of the new attempt."""
    reader = plan.project.log.reader
    attempt = 2 + sum(1 for _ in reader.ordered(plan.run_id, ["run.resumed"]))
    root_id = reader.run(plan.run_id).root_id
    for first in reader.stream(root_id, types=["run.created"], limit=1):
        if isinstance(first.body, RunCreated):
            asked = first.body.options.asked
            caller = read_traceparent(str(asked.get("traceparent", "")))
            if caller is not None:
                return caller.trace_id, attempt
    return trace_of(root_id), attempt


def add_traceparent(node: Run, context: ToolContext) -> ToolContext:
    """Return the context with the run's span in the environment of its programs."""
    span = node.get(TraceParent)
    if span is None:
        return context
    return replace(context, environment={**context.environment, TRACEPARENT_VARIABLE: span.header()})


def request_headers(node: Run) -> Callable[[], Mapping[str, str]] | None:
    """Return a function for the headers of the next request. It names the span of the turn, which has begun."""
    span = node.get(TraceParent)
    if span is None:
        return None
    trace_id = span.trace_id

    def headers() -> Mapping[str, str]:
        return {"traceparent": TraceParent(trace_id, event_span(node.id, node.state.turn_seq)).header()}

    return headers


def note_failure(node: Run) -> None:
    """Add a note to the run, once per process, that traces are lost."""
    if node.project.has_part(Tracing):
        failure = node.project.part(Tracing).take_failure()
        if failure:
            node.end_notes.append(failure)


EXPORT_BATCH_SPANS = 512


class SentTrace(Struct, frozen=True):
    """The result of an export. `failure` is the reason why some spans were not sent."""

    spans: int
    endpoint: str
    trace_id: str
    failure: str = ""


def _spans_of(reader: LogReader, run_ids: Iterable[str], *, content: bool) -> Iterator[TraceSpan]:
    """Yield the spans of runs. Parents must come before their children."""
    translator = SpanTranslator(reader.stream, content=content)
    for run_id in run_ids:
        for event in reader.stream(run_id):
            yield from translator.take(event)
    yield from translator.end_interrupted()


async def send_past(
    reader: LogReader, run_ids: Iterable[str], environment: Mapping[str, str], *, content: bool
) -> SentTrace:
    """Send the spans of past runs. Stop at the first failure: later batches would fail as well."""
    transport = Transport()
    collector = TraceCollector(environment, transport)
    spans = _spans_of(reader, run_ids, content=content)
    trace_id = 0
    while not collector.failure and (batch := list(islice(spans, EXPORT_BATCH_SPANS))):
        trace_id = batch[-1].trace_id
        await collector.send_spans(batch)
    await transport.close()
    return SentTrace(collector.sent, collector.endpoint, f"{trace_id:032x}", collector.failure)
