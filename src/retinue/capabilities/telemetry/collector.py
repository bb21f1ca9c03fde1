"""The collector that traces and metrics go to, by OTLP over HTTP, and the bytes of that protocol.

OpenTelemetry's own variables configure it: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, and those for one signal (`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`).

The README says why OpenTelemetry's SDK is not used. The messages below are stable, and tests decode them with the
official definitions. `number` is the number of a field in the definition of its message.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import unquote

from retinue.capabilities.telemetry import attributes as names
from retinue.capabilities.telemetry.spans import TraceSpan
from retinue.core.version import __version__
from retinue.http.transport import Transport, TransportError

DEFAULT_ENDPOINT = "http://localhost:4318"
SEND_SECONDS = 5.0
Signal = Literal["traces", "metrics"]
_NO_ROUTE_STATUSES = (404, 405, 501)
_KIND_INTERNAL, _KIND_CLIENT = 1, 3
_STATUS_ERROR = 2
CUMULATIVE = 2
MAX_CACHED_LENGTH = 64
"""Characters of a text whose bytes are cached."""


class TraceCollector:
    """Sends batches to the collector. `failure` is the reason why the last one was not accepted; nothing is raised."""

    def __init__(self, environment: Mapping[str, str], transport: Transport) -> None:
        self._environment = environment
        self._transport = transport
        self._resource = resource_of(environment)
        self._accepts_metrics = environment.get("OTEL_METRICS_EXPORTER") != "none"
        self.sent = 0
        self.failure = ""

    @property
    def endpoint(self) -> str:
        return self._endpoint("traces")

    async def send_spans(self, spans: Sequence[TraceSpan]) -> None:
        """Send a batch of spans."""
        if await self._send("traces", _request(map(_span, spans), self._resource)):
            self.sent += len(spans)

    async def send_metrics(self, metrics: Iterable[bytes]) -> None:
        """Send encoded metrics, if the collector accepts metrics."""
        if self._accepts_metrics:
            await self._send("metrics", _request(metrics, self._resource))

    async def _send(self, signal: Signal, body: bytes) -> bool:
        headers = {"content-type": "application/x-protobuf", "user-agent": f"retinue/{__version__}"}
        for_signal = self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS")
        headers |= _pairs(for_signal or self._environment.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
        try:
            async with (
                asyncio.timeout(SEND_SECONDS),
                await self._transport.post(self._endpoint(signal), headers, body) as response,
            ):
                await response.body()
                if response.status < 300:
                    return True
                if signal == "metrics" and response.status in _NO_ROUTE_STATUSES:
                    # Many back ends, such as Phoenix and Langfuse, accept traces only.
                    self._accepts_metrics = False
                    return False
                self.failure = f"the answer had status {response.status}"
        except TransportError as error:
            self.failure = error.message
        except TimeoutError:
            self.failure = f"it did not answer within {SEND_SECONDS:g} seconds"
        return False

    def _endpoint(self, signal: Signal) -> str:
        for_signal = self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        if for_signal:
            return for_signal
        base = self._environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT
        return f"{base.rstrip('/')}/v1/{signal}"


def resource_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that identify this program."""
    service_name = environment.get("OTEL_SERVICE_NAME")
    return {
        "service.name": "retinue",
        **_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")),
        **({"service.name": service_name} if service_name else {}),
        "service.version": __version__,
        "telemetry.sdk.name": "retinue",
        "telemetry.sdk.language": "python",
    }


def _pairs(listed: str) -> dict[str, str]:
    pairs = {}
    for pair in listed.split(","):
        name, sign, value = pair.partition("=")
        if sign:
            pairs[unquote(name.strip())] = unquote(value.strip())
    return pairs


def _request(items: Iterable[bytes], resource: Mapping[str, str]) -> bytes:
    """Return a request with one resource and one scope; traces and metrics are built alike."""
    scope = message_field(1, text_field(1, names.SCOPE) + text_field(2, __version__))
    content = b"".join(message_field(2, item) for item in items)
    return message_field(
        1,
        message_field(1, attribute_fields(1, resource))
        + message_field(2, scope + content + text_field(3, names.SCHEMA_URL)),
    )


def _span(span: TraceSpan) -> bytes:
    trace_id = span.trace_id.to_bytes(16)
    parts = [message_field(1, trace_id), message_field(2, span.span_id.to_bytes(8))]
    if span.parent_id is not None:
        parts.append(message_field(4, span.parent_id.to_bytes(8)))
    parts.append(text_field(5, span.name))
    parts.append(integer_field(6, _KIND_CLIENT if span.operation == "chat" else _KIND_INTERNAL))
    parts.append(time_field(7, span.start) + time_field(8, span.end))
    parts.append(attribute_fields(9, span.attributes))
    for event in span.events:
        parts.append(
            message_field(
                11, time_field(1, event.at) + text_field(2, event.name) + attribute_fields(3, event.attributes)
            )
        )
    for link in span.links:
        parts.append(message_field(13, message_field(1, trace_id) + message_field(2, link.to_bytes(8))))
    if span.error is not None:
        parts.append(message_field(15, text_field(2, span.error) + integer_field(3, _STATUS_ERROR)))
    return b"".join(parts)


# Fields of messages


def attribute_fields(number: int, values: Mapping[str, Any]) -> bytes:
    """Return a repeated field of key-value pairs."""
    parts = []
    for name, value in values.items():
        if isinstance(value, str) and len(value) <= MAX_CACHED_LENGTH:
            parts.append(_text_attribute(number, name, value))
        else:
            parts.append(message_field(number, _key(name) + message_field(2, _value(value))))
    return b"".join(parts)


@lru_cache(4_096)
def _text_attribute(number: int, name: str, value: str) -> bytes:
    """Return one attribute, cached, because ids and names repeat in every span."""
    return message_field(number, _key(name) + message_field(2, text_field(1, value)))


@lru_cache(256)
def _key(name: str) -> bytes:
    return text_field(1, name)


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return text_field(1, value)
    if isinstance(value, bool):
        return integer_field(2, int(value))
    if isinstance(value, int):
        return integer_field(3, value)
    if isinstance(value, float):
        return double_field(4, value)
    items = b"".join(message_field(1, _value(item)) for item in value)
    return message_field(5, items)


def message_field(number: int, data: bytes) -> bytes:
    """Return a field of bytes: a message, a text, an id."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def text_field(number: int, value: str) -> bytes:
    """Return a field of text."""
    return message_field(number, value.encode("utf-8", "replace"))


def integer_field(number: int, value: int) -> bytes:
    """Return a field of an integer, which may be negative."""
    return _varint(number << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def double_field(number: int, value: float) -> bytes:
    """Return a field of a floating-point number."""
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def fixed64_field(number: int, value: int) -> bytes:
    """Return a field of eight bytes."""
    return _varint(number << 3 | 1) + struct.pack("<Q", value)


def time_field(number: int, at: float) -> bytes:
    """Return a field of Unix nanoseconds."""
    return fixed64_field(number, int(at * 1e9))


def _varint(value: int) -> bytes:
    if value < 128:
        return _ONE_BYTE_VARINTS[value]
    data = bytearray()
    while value >= 128:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


_ONE_BYTE_VARINTS = [bytes([value]) for value in range(128)]
