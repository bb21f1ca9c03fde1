"""The collector that traces and metrics go to, by OTLP over HTTP.

OpenTelemetry's own variables say where it is: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, and those for one signal (`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import unquote

from retinue.capabilities.telemetry.metrics import SpanMetrics
from retinue.capabilities.telemetry.otlp import encode_metrics, encode_spans
from retinue.capabilities.telemetry.spans import TraceSpan
from retinue.core.version import __version__
from retinue.http.transport import Transport, TransportError

DEFAULT_ENDPOINT = "http://localhost:4318"
SEND_SECONDS = 5.0
Signal = Literal["traces", "metrics"]
_NO_SUCH_ROUTE = (404, 405, 501)


class TraceCollector:
    """Takes batches. `failure` says why the last one was not taken; no failure is ever raised."""

    def __init__(self, environment: Mapping[str, str], transport: Transport) -> None:
        self._environment = environment
        self._transport = transport
        self._resource = resource_of(environment)
        self._takes_metrics = environment.get("OTEL_METRICS_EXPORTER") != "none"
        self.sent = 0
        self.failure = ""

    @property
    def endpoint(self) -> str:
        return self._endpoint("traces")

    async def send_spans(self, spans: Sequence[TraceSpan]) -> None:
        """Send a batch of spans."""
        if await self._send("traces", encode_spans(spans, self._resource)):
            self.sent += len(spans)

    async def send_metrics(self, metrics: SpanMetrics) -> None:
        """Send metrics as they stand, where the collector takes metrics."""
        if self._takes_metrics:
            await self._send("metrics", encode_metrics(metrics.encode(), self._resource))

    async def _send(self, signal: Signal, body: bytes) -> bool:
        headers = {"content-type": "application/x-protobuf", "user-agent": f"retinue/{__version__}"}
        headers |= self._headers(signal)
        try:
            async with (
                asyncio.timeout(SEND_SECONDS),
                await self._transport.post(self._endpoint(signal), headers, body) as response,
            ):
                await response.body()
                if response.status < 300:
                    return True
                if signal == "metrics" and response.status in _NO_SUCH_ROUTE:
                    # Many back ends, such as Phoenix and Langfuse, take traces only.
                    self._takes_metrics = False
                    return False
                self.failure = f"it answered with status {response.status}"
        except TransportError as error:
            self.failure = error.message
        except TimeoutError:
            self.failure = f"it did not answer within {SEND_SECONDS:g} seconds"
        return False

    def _endpoint(self, signal: Signal) -> str:
        own = self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        if own:
            return own
        base = self._environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT
        return f"{base.rstrip('/')}/v1/{signal}"

    def _headers(self, signal: Signal) -> dict[str, str]:
        own = self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS")
        return _pairs(own or self._environment.get("OTEL_EXPORTER_OTLP_HEADERS", ""))


def resource_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what says which program speaks."""
    found = {"service.name": "retinue", **_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))}
    own = environment.get("OTEL_SERVICE_NAME")
    if own:
        found["service.name"] = own
    sdk = {"telemetry.sdk.name": "retinue", "telemetry.sdk.language": "python"}
    return {**found, "service.version": __version__, **sdk}


def _pairs(given: str) -> dict[str, str]:
    found = {}
    for each in given.split(","):
        name, sign, value = each.partition("=")
        if sign:
            found[unquote(name.strip())] = unquote(value.strip())
    return found
