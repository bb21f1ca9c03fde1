"""Metrics of finished spans: how long, how many tokens, how much money, how they ended.

Attributes are few and have few values (agent, model, tool, ending), never an id or a path. Sums grow from the start of
the process on, as OTLP's cumulative metrics do.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from retinue.capabilities.telemetry import attributes as names
from retinue.capabilities.telemetry.collector import CUMULATIVE, attributes, block, fixed, moment, real, text, whole
from retinue.capabilities.telemetry.spans import TraceSpan

SECONDS = tuple(0.01 * 2**power for power in range(14))
TOKENS = tuple(float(4**power) for power in range(14))
_DURATIONS = {
    "chat": ("gen_ai.client.operation.duration", (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL)),
    "invoke_agent": ("gen_ai.invoke_agent.duration", (names.OPERATION, names.AGENT_NAME, names.REQUEST_MODEL)),
    "execute_tool": ("gen_ai.execute_tool.duration", (names.OPERATION, names.TOOL_NAME)),
}
_WAITS = {"person": "retinue.inbox.wait", "slot": "retinue.queue.wait"}
_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
_TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - the name of a metric
_UNITS = {_TOKEN_USAGE: "{token}", "retinue.run.count": "{run}", "retinue.cost.usd": "USD"}

Labels = tuple[tuple[str, str], ...]


class Spread(Struct):
    """The number of values between bounds, and their sum."""

    buckets: list[int]
    count: int = 0
    sum: float = 0.0


class SpanMetrics(Struct):
    """Counts each span that ends. `began` is when counting began, in Unix seconds."""

    began: float = field(default_factory=time.time)
    spreads: dict[tuple[str, Labels], Spread] = field(default_factory=dict)
    sums: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def count(self, span: TraceSpan) -> None:
        """Add one span."""
        values = span.attributes
        reason = values.get(names.WAIT_FOR)
        if reason is not None:
            self._record(_WAITS[reason], (), span.seconds, SECONDS)
            return
        name, label_names = _DURATIONS[span.operation]
        labels = _labels(values, label_names)
        failed = () if span.error is None else ((names.ERROR_TYPE, span.error),)
        self._record(name, labels + failed, span.seconds, SECONDS)
        if span.operation == "invoke_agent":
            self._add("retinue.run.count", _labels(values, (names.AGENT_NAME, names.ENDED)), 1)
        if span.operation != "chat":
            return
        for kind, name in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
            self._record(_TOKEN_USAGE, (*labels, ("gen_ai.token.type", kind)), values[name], TOKENS)
        first = values.get(names.FIRST_CHUNK)
        if first is not None:
            self._record(_FIRST_CHUNK, labels, first, SECONDS)
        cost = values.get(names.COST)
        if cost:
            self._add("retinue.cost.usd", labels[1:], cost)

    def _record(self, name: str, labels: Labels, value: float, bounds: tuple[float, ...]) -> None:
        spread = self.spreads.get((name, labels))
        if spread is None:
            spread = self.spreads[name, labels] = Spread([0] * (len(bounds) + 1))
        spread.buckets[bisect_left(bounds, value)] += 1
        spread.count += 1
        spread.sum += value

    def _add(self, name: str, labels: Labels, value: float) -> None:
        self.sums[name, labels] = self.sums.get((name, labels), 0.0) + value

    # As OTLP

    def encode(self) -> Iterator[bytes]:
        """Yield each metric as an OTLP message."""
        now = time.time()
        points: dict[str, bytes] = {}
        for (name, labels), spread in self.spreads.items():
            points[name] = points.get(name, b"") + block(1, self._spread(name, labels, spread, now))
        for name, data in points.items():
            yield _head(name) + block(9, data + whole(2, CUMULATIVE))
        sums: dict[str, bytes] = {}
        for (name, labels), value in self.sums.items():
            point = attributes(7, dict(labels)) + moment(2, self.began) + moment(3, now) + real(4, value)
            sums[name] = sums.get(name, b"") + block(1, point)
        for name, data in sums.items():
            yield _head(name) + block(7, data + whole(2, CUMULATIVE) + whole(3, 1))

    def _spread(self, name: str, labels: Labels, spread: Spread, now: float) -> bytes:
        bounds = TOKENS if name == _TOKEN_USAGE else SECONDS
        counts = struct.pack(f"<{len(spread.buckets)}Q", *spread.buckets)
        edges = struct.pack(f"<{len(bounds)}d", *bounds)
        times = moment(2, self.began) + moment(3, now)
        totals = fixed(4, spread.count) + real(5, spread.sum)
        return attributes(9, dict(labels)) + times + totals + block(6, counts) + block(7, edges)


def _head(name: str) -> bytes:
    return text(1, name) + text(3, _UNITS.get(name, "s"))


def _labels(values: Mapping[str, Any], labels: tuple[str, ...]) -> Labels:
    return tuple([(name, values[name]) for name in labels if name in values])
