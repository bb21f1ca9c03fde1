"""Spans and metrics on their way to a collector, by OTLP over HTTP, with the SDK of OpenTelemetry.

Where to is said by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `…_HEADERS`, `OTEL_SERVICE_NAME`,
`OTEL_RESOURCE_ATTRIBUTES`). Sending happens in threads of the SDK, a batch at a time; what does not fit into its queue
is dropped, and a collector that fails is said once. No run waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from retinue.capabilities.telemetry import conventions as names
from retinue.capabilities.telemetry.spans import TraceSpan
from retinue.core.version import __version__
from retinue.errors import MissingExtraError

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise MissingExtraError("otel", "The setting `telemetry`") from error

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
DEFAULT_ENDPOINT = "http://localhost:4318"
SEND_SECONDS = 5.0
CLOSE_SECONDS = 5.0
_SCOPE = InstrumentationScope(names.SCOPE, __version__, names.SCHEMA_URL)
_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


class Collector(SpanExporter):
    """Sends spans to the collector that the variables name, and remembers whether it failed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # The SDK would print each failure; `failure` says it once.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False
        self.endpoint = _endpoint(environment, "traces")
        headers = _headers(environment, "traces")
        self._inner = OTLPSpanExporter(endpoint=self.endpoint, headers=headers, timeout=SEND_SECONDS)
        self.sent = 0
        self.failure = ""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._inner.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever it is, no run may notice
            self.failure = f"{type(error).__name__}: {error}"
            return SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.failure = self.failure or "no answer, or a refusal"
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class SpanSender:
    """Sends finished spans, a batch at a time, from a thread of its own."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.collector = Collector(environment)
        self._resource = resource_of(environment)
        self._batches = BatchSpanProcessor(self.collector)

    def send(self, span: TraceSpan) -> None:
        """Hand over one span. Return at once."""
        self._batches.on_end(readable(span, self._resource))

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._batches.force_flush(int(CLOSE_SECONDS * 1000))
        self._batches.shutdown()  # type: ignore[no-untyped-call]


def open_meter(environment: Mapping[str, str]) -> tuple[Meter, MeterProvider]:
    """Return what metrics are made with, and what must be shut down at the end."""
    exporter = OTLPMetricExporter(
        endpoint=_endpoint(environment, "metrics"), headers=_headers(environment, "metrics"), timeout=SEND_SECONDS
    )
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)], resource_of(environment))
    return provider.get_meter(names.SCOPE, __version__, names.SCHEMA_URL), provider


def resource_of(environment: Mapping[str, str]) -> Resource:
    """Return what says which program speaks."""
    attributes: dict[str, Any] = {}
    for name, value in _pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")):
        attributes[name] = value
    attributes["service.name"] = environment.get("OTEL_SERVICE_NAME") or attributes.get("service.name") or "retinue"
    attributes["service.version"] = __version__
    return Resource.create(attributes)


def readable(span: TraceSpan, resource: Resource) -> ReadableSpan:
    """Return a span as the SDK has it."""
    above = None
    if span.parent_id is not None:
        above = _context(span.trace_id, span.parent_id)
    status = Status(StatusCode.UNSET)
    if span.error is not None:
        status = Status(StatusCode.ERROR, span.error)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=above,
        resource=resource,
        attributes=span.attributes,
        events=[Event(each.name, each.attributes, _nanoseconds(each.at)) for each in span.events],
        links=[Link(_context(span.trace_id, each)) for each in span.links],
        kind=_KINDS[span.kind],
        status=status,
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end),
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)


def _endpoint(environment: Mapping[str, str], signal: str) -> str:
    own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    if own:
        return own
    return f"{environment.get(ENDPOINT, DEFAULT_ENDPOINT).rstrip('/')}/v1/{signal}"


def _headers(environment: Mapping[str, str], signal: str) -> dict[str, str]:
    text = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS") or environment.get(
        "OTEL_EXPORTER_OTLP_HEADERS", ""
    )
    return dict(_pairs(text))


def _pairs(text: str) -> list[tuple[str, str]]:
    found = []
    for each in text.split(","):
        name, sign, value = each.partition("=")
        if sign:
            found.append((unquote(name.strip()), unquote(value.strip())))
    return found
