"""Tracing of the runs of one process: it follows the log, and sends what ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.telemetry.spans import TraceParent, agent_span, read_traceparent, trace_of
from retinue.capabilities.telemetry.translate import HANDLED, SpanTranslator
from retinue.core.events import Event, RunCreated
from retinue.errors import MissingExtraError

if TYPE_CHECKING:
    from retinue.capabilities.telemetry.metrics import SpanMetrics
    from retinue.core.tool import ToolContext
    from retinue.log.follow import Subscription
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project

VARIABLE = "TRACEPARENT"


class Tracing:
    """Spans and metrics of every run that this process writes to the log. Use from one event loop."""

    def __init__(self, project: Project) -> None:
        from retinue.capabilities.telemetry.export import SpanSender, open_meter
        from retinue.capabilities.telemetry.metrics import SpanMetrics

        self._project = project
        content = project.settings.settings.telemetry == "content"
        self._translator = SpanTranslator(self._recall, content=content)
        self._sender = SpanSender(project.environment)
        meter, self._meters = open_meter(project.environment)
        self._metrics: SpanMetrics = SpanMetrics(meter)
        self._subscription: Subscription = project.log.subscribe()
        self._task = asyncio.create_task(self._follow(), name="telemetry")
        self._said = False

    def _recall(self, run_id: str) -> Iterable[Event]:
        return self._project.log.reader.stream(run_id)

    async def _follow(self) -> None:
        async for event in self._subscription:
            if not isinstance(event.body, HANDLED):
                continue
            for span in self._translator.take(event):
                self._sender.send(span)
                self._metrics.count(span)

    def take_failure(self) -> str:
        """Return why spans could not be sent, once; empty while all is well."""
        failure = self._sender.collector.failure
        if not failure or self._said:
            return ""
        self._said = True
        return f"Traces could not be sent to {self._sender.collector.endpoint}: {failure}."

    async def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._subscription.close()
        await asyncio.wait({self._task})
        await asyncio.to_thread(self._shut_down)
        failure = self.take_failure()
        if failure:
            # The runs have ended before the collector refused: there are no notes left to say it in.
            logging.getLogger("retinue").warning(failure)

    def _shut_down(self) -> None:
        self._sender.close()
        self._meters.shutdown(timeout_millis=2_000)


class TracePlace(Struct, frozen=True):
    """The span of the attempt of a run that begins."""

    span: TraceParent


def start_tracing(plan: LaunchPlan) -> None:
    """Follow the log from the first run on. A run that belongs to a trace of someone else continues that trace."""
    try:
        plan.project.part(Tracing)
    except MissingExtraError as error:
        plan.note(f"{error.message} {error.remedy}")
        return
    if plan.preview or not plan.run_id:
        return
    request = plan.request
    above = plan.parent.get(TracePlace) if plan.parent is not None else None
    trace_id = trace_of(plan.run_id)
    attempt = 1
    given = read_traceparent(plan.project.environment.get(VARIABLE, ""))
    if plan.resumed:
        trace_id, attempt = _continue(plan)
    elif above is not None:
        trace_id = above.span.trace_id
    elif given is not None:
        trace_id = given.trace_id
        plan.request = replace(request, asked={**request.asked, "traceparent": given.header()})
    plan.put(TracePlace(TraceParent(trace_id, agent_span(plan.run_id, attempt))))


def _continue(plan: LaunchPlan) -> tuple[int, int]:
    """Return the trace of a run that goes on, and the number of the attempt that begins."""
    reader = plan.project.log.reader
    attempt = 2 + len(reader.ordered(plan.run_id, ["run.resumed"]))
    root_id = reader.run(plan.run_id).root_id
    for first in reader.stream(root_id, types=["run.created"], limit=1):
        if isinstance(first.body, RunCreated):
            asked = first.body.options.get("asked") or {}
            given = read_traceparent(str(asked.get("traceparent", "")))
            if given is not None:
                return given.trace_id, attempt
    return trace_of(root_id), attempt


def pass_trace_on(node: RunNode, context: ToolContext) -> ToolContext:
    """Return the context in which programs of the run find their place in its trace."""
    place = node.get(TracePlace)
    if place is None:
        return context
    return replace(context, environment={**context.environment, VARIABLE: place.span.header()})


def say_failure(node: RunNode) -> None:
    """Tell once, in the notes of a run, that traces get lost."""
    if node.project.has_part(Tracing):
        said = node.project.part(Tracing).take_failure()
        if said:
            node.end_notes.append(said)
