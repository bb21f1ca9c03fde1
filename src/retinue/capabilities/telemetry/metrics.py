"""Metrics of finished spans: duration, tokens, cost and outcome.

Their attributes have few different values (agent, model, tool, end), never an id or a path. Sums count from the start
of the process, as OTLP's cumulative metrics do.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from retinue.capabilities.telemetry import attributes as names
from retinue.capabilities.telemetry.collector import (
    CUMULATIVE,
    attribute_fields,
    double_field,
    fixed64_field,
    integer_field,
    message_field,
    text_field,
    time_field,
)
from retinue.capabilities.telemetry.spans import TraceSpan

SECONDS_BOUNDS = tuple(0.01 * 2**power for power in range(14))
TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
_DURATION_METRICS = {
    "chat": ("gen_ai.client.operation.duration", (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL)),
    "invoke_agent": ("gen_ai.invoke_agent.duration", (names.OPERATION, names.AGENT_NAME, names.REQUEST_MODEL)),
    "execute_tool": ("gen_ai.execute_tool.duration", (names.OPERATION, names.TOOL_NAME)),
}
_WAIT_METRICS = {"person": "retinue.inbox.wait", "slot": "retinue.queue.wait"}
_FIRST_CHUNK_METRIC = "gen_ai.client.operation.time_to_first_chunk"
_TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - the name of a metric
_METRIC_UNITS = {_TOKEN_USAGE: "{token}", "retinue.run.count": "{run}", "retinue.cost.usd": "USD"}

Labels = tuple[tuple[str, str], ...]


class Histogram(Struct):
    """The number of values between bounds, and their sum."""

    buckets: list[int]
    count: int = 0
    sum: float = 0.0


class SpanMetrics(Struct):
    """The metrics of a process. `began` is when it began to count, in Unix seconds."""

    began: float = field(default_factory=time.time)
    histograms: dict[tuple[str, Labels], Histogram] = field(default_factory=dict)
    sums: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def count(self, span: TraceSpan) -> None:
        """Add one span."""
        values = span.attributes
        reason = values.get(names.WAIT_FOR)
        if reason is not None:
            self._record(_WAIT_METRICS[reason], (), span.seconds, SECONDS_BOUNDS)
            return
        name, label_names = _DURATION_METRICS[span.operation]
        labels = _labels(values, label_names)
        failed = () if span.error is None else ((names.ERROR_TYPE, span.error),)
        self._record(name, labels + failed, span.seconds, SECONDS_BOUNDS)
        if span.operation == "invoke_agent":
            self._add("retinue.run.count", _labels(values, (names.AGENT_NAME, names.ENDED)), 1)
        if span.operation != "chat":
            return
        for kind, name in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
            self._record(_TOKEN_USAGE, (*labels, ("gen_ai.token.type", kind)), values[name], TOKEN_BOUNDS)
        first = values.get(names.FIRST_CHUNK)
        if first is not None:
            self._record(_FIRST_CHUNK_METRIC, labels, first, SECONDS_BOUNDS)
        cost = values.get(names.COST)
        if cost:
            self._add("retinue.cost.usd", labels[1:], cost)

    def _record(self, name: str, labels: Labels, value: float, bounds: tuple[float, ...]) -> None:
        histogram = self.histograms.get((name, labels))
        if histogram is None:
            histogram = self.histograms[name, labels] = Histogram([0] * (len(bounds) + 1))
        histogram.buckets[bisect_left(bounds, value)] += 1
        histogram.count += 1
        histogram.sum += value

    def _add(self, name: str, labels: Labels, value: float) -> None:
        self.sums[name, labels] = self.sums.get((name, labels), 0.0) + value

    # As OTLP

    def encode(self) -> Iterator[bytes]:
        """Yield each metric as an OTLP message."""
        now = time.time()
        points: dict[str, bytes] = {}
        for (name, labels), histogram in self.histograms.items():
            points[name] = points.get(name, b"") + message_field(1, self._histogram(name, labels, histogram, now))
        for name, data in points.items():
            yield _head(name) + message_field(9, data + integer_field(2, CUMULATIVE))
        sums: dict[str, bytes] = {}
        for (name, labels), value in self.sums.items():
            point = (
                attribute_fields(7, dict(labels))
                + time_field(2, self.began)
                + time_field(3, now)
                + double_field(4, value)
            )
            sums[name] = sums.get(name, b"") + message_field(1, point)
        for name, data in sums.items():
            yield _head(name) + message_field(7, data + integer_field(2, CUMULATIVE) + integer_field(3, 1))

    def _histogram(self, name: str, labels: Labels, histogram: Histogram, now: float) -> bytes:
        bounds = TOKEN_BOUNDS if name == _TOKEN_USAGE else SECONDS_BOUNDS
        counts = struct.pack(f"<{len(histogram.buckets)}Q", *histogram.buckets)
        edges = struct.pack(f"<{len(bounds)}d", *bounds)
        times = time_field(2, self.began) + time_field(3, now)
        totals = fixed64_field(4, histogram.count) + double_field(5, histogram.sum)
        return attribute_fields(9, dict(labels)) + times + totals + message_field(6, counts) + message_field(7, edges)


def _head(name: str) -> bytes:
    return text_field(1, name) + text_field(3, _METRIC_UNITS.get(name, "s"))


def _labels(values: Mapping[str, Any], labels: tuple[str, ...]) -> Labels:
    return tuple([(name, values[name]) for name in labels if name in values])
