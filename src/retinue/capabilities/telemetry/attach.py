"""Tracing of the runs of one process: it follows the log, and sends what ends.

Past runs become traces with the same spans as if they had been sent while the runs worked.
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


VARIABLE = "TRACEPARENT"
BATCH_SPANS = 256
MAX_WAITING_SPANS = 8_192
SEND_EVERY_SECONDS = 5.0


class Tracing:
    """Spans and metrics of every run that this process writes to the log. Use from one event loop. Runs never wait for
    the collector: while it is slow, spans wait here, and above `MAX_WAITING_SPANS` they are dropped."""

    def __init__(self, project: Project) -> None:
        project.closing.push_async_callback(self.close)
        content = project.settings.settings.telemetry == "content"
        self._translator = SpanTranslator(project.log.reader.stream, content=content)
        self._collector = TraceCollector(project.environment, project.transport)
        self._metrics = SpanMetrics()
        self._waiting: list[TraceSpan] = []
        self._dropped = 0
        self._said = False
        self._over = asyncio.Event()
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
        """Send what waits every few seconds."""
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), SEND_EVERY_SECONDS)
            await self._send_waiting()

    async def _send_waiting(self) -> None:
        batches, sent = 0, self._collector.sent
        while self._waiting:
            batch = self._waiting[:BATCH_SPANS]
            del self._waiting[:BATCH_SPANS]
            await self._collector.send_spans(batch)
            batches += 1
            if self._over.is_set() and self._collector.sent == sent:
                # It takes nothing: each further batch would only hold up the end of the program.
                self._dropped += len(self._waiting)
                self._waiting.clear()
            sent = self._collector.sent
        if batches:
            await self._collector.send_metrics(self._metrics.encode())

    def take_failure(self) -> str:
        """Return why spans were lost, once; empty while all is well."""
        if self._said or not (self._collector.failure or self._dropped):
            return ""
        self._said = True
        why = self._collector.failure or "it is too slow"
        return f"Traces could not be sent to {self._collector.endpoint}: {why.rstrip('.')}."

    async def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._subscription.close()
        await asyncio.wait({self._following})
        self._over.set()
        await asyncio.wait({self._sending})
        failure = self.take_failure()
        if failure:
            # The runs have ended before the collector refused: there are no notes left to say it in.
            logging.getLogger("retinue").warning(failure)


def start_tracing(plan: LaunchPlan) -> None:
    """Follow the log from the first run on. A run that belongs to a trace of someone else continues that trace."""
    if plan.preview or not plan.run_id:
        return
    plan.project.part(Tracing)
    request = plan.request
    above = plan.parent.get(TraceParent) if plan.parent is not None else None
    trace_id = trace_of(plan.run_id)
    attempt = 1
    outer = read_traceparent(plan.project.environment.get(VARIABLE, ""))
    if plan.resumed:
        trace_id, attempt = _continue(plan)
    elif above is not None:
        trace_id = above.trace_id
    elif outer is not None:
        trace_id = outer.trace_id
        plan.request = replace(request, asked={**request.asked, "traceparent": outer.header()})
    plan.put(TraceParent(trace_id, agent_span(plan.run_id, attempt)))


def _continue(plan: LaunchPlan) -> tuple[int, int]:
    """Return the trace of a run that is resumed, and the number of the attempt that begins."""
    reader = plan.project.log.reader
    attempt = 2 + sum(1 for _ in reader.ordered(plan.run_id, ["run.resumed"]))
    root_id = reader.run(plan.run_id).root_id
    for first in reader.stream(root_id, types=["run.created"], limit=1):
        if isinstance(first.body, RunCreated):
            asked = first.body.options.asked
            outer = read_traceparent(str(asked.get("traceparent", "")))
            if outer is not None:
                return outer.trace_id, attempt
    return trace_of(root_id), attempt


def pass_trace_on(node: Run, context: ToolContext) -> ToolContext:
    """Return the context in which programs of the run find their place in its trace."""
    span = node.get(TraceParent)
    if span is None:
        return context
    return replace(context, environment={**context.environment, VARIABLE: span.header()})


def headers_of_requests(node: Run) -> Callable[[], Mapping[str, str]] | None:
    """Return what names the span of the request that comes next: its turn has begun."""
    span = node.get(TraceParent)
    if span is None:
        return None
    trace_id = span.trace_id

    def headers() -> Mapping[str, str]:
        return {"traceparent": TraceParent(trace_id, event_span(node.id, node.state.turn_seq)).header()}

    return headers


def say_failure(node: Run) -> None:
    """Tell once, in the notes of a run, that traces get lost."""
    if node.project.has_part(Tracing):
        failure = node.project.part(Tracing).take_failure()
        if failure:
            node.end_notes.append(failure)


EXPORT_BATCH_SPANS = 512


class SentTrace(Struct, frozen=True):
    """The result of an export: how many spans were sent, to where, and why others were not."""

    spans: int
    endpoint: str
    trace_id: str
    failure: str = ""


def spans_of(reader: LogReader, run_ids: Iterable[str], *, content: bool) -> Iterator[TraceSpan]:
    """Yield the spans of runs, of which parents come before their children."""
    translator = SpanTranslator(reader.stream, content=content)
    for run_id in run_ids:
        for event in reader.stream(run_id):
            yield from translator.take(event)
    yield from translator.cut_off()


async def send_past(
    reader: LogReader, run_ids: Iterable[str], environment: Mapping[str, str], *, content: bool
) -> SentTrace:
    """Send the spans of past runs. Stop at the first failure: the rest would fail as well."""
    transport = Transport()
    collector = TraceCollector(environment, transport)
    spans = spans_of(reader, run_ids, content=content)
    trace_id = 0
    while not collector.failure and (batch := list(islice(spans, EXPORT_BATCH_SPANS))):
        trace_id = batch[-1].trace_id
        await collector.send_spans(batch)
    await transport.close()
    return SentTrace(collector.sent, collector.endpoint, f"{trace_id:032x}", collector.failure)
