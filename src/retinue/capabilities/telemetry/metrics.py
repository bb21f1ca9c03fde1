"""Metrics of finished spans: how long, how many tokens, how much money, how they ended.

Attributes are few and have few values (agent, model, tool, ending), never an id or a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.capabilities.telemetry import conventions as names
from retinue.capabilities.telemetry.spans import TraceSpan

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

_SECONDS = tuple(0.01 * 2**power for power in range(14))
_TOKENS = tuple(float(4**power) for power in range(14))
_DURATIONS = {
    "chat": ("gen_ai.client.operation.duration", (names.PROVIDER, names.REQUEST_MODEL, names.ERROR_TYPE)),
    "invoke_agent": ("gen_ai.invoke_agent.duration", (names.AGENT_NAME, names.REQUEST_MODEL, names.ERROR_TYPE)),
    "execute_tool": ("gen_ai.execute_tool.duration", (names.TOOL_NAME, names.ERROR_TYPE)),
}
_WAITS = {"person": "retinue.inbox.wait", "slot": "retinue.queue.wait"}


class SpanMetrics:
    """Counts each span that ends."""

    def __init__(self, meter: Meter) -> None:
        self._durations = {operation: self._seconds(meter, name) for operation, (name, _) in _DURATIONS.items()}
        self._waits = {reason: self._seconds(meter, name) for reason, name in _WAITS.items()}
        self._first_chunk = self._seconds(meter, "gen_ai.client.operation.time_to_first_chunk")
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=_TOKENS
        )
        self._runs = meter.create_counter("retinue.run.count", "{run}")
        self._cost = meter.create_counter("retinue.cost.usd", "USD")

    def _seconds(self, meter: Meter, name: str) -> Histogram:
        return meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=_SECONDS)

    def count(self, span: TraceSpan) -> None:
        """Add one span to the sums."""
        reason = span.attributes.get(names.WAIT_FOR)
        if reason is not None:
            self._waits[reason].record(span.seconds)
            return
        _, kept = _DURATIONS[span.operation]
        common = {names.OPERATION: span.operation, **_only(span.attributes, kept)}
        self._durations[span.operation].record(span.seconds, common)
        if span.operation == "chat":
            self._count_request(span, common)
        elif span.operation == "invoke_agent":
            ended = _only(span.attributes, (names.AGENT_NAME, names.ENDED))
            self._runs.add(1, ended)

    def _count_request(self, span: TraceSpan, common: dict[str, Any]) -> None:
        for kind, name in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
            self._tokens.record(span.attributes.get(name, 0), {**common, names.TOKEN_TYPE: kind})
        if names.FIRST_CHUNK in span.attributes:
            self._first_chunk.record(span.attributes[names.FIRST_CHUNK], common)
        cost = span.attributes.get(names.COST)
        if cost:
            self._cost.add(cost, _only(span.attributes, (names.PROVIDER, names.REQUEST_MODEL)))


def _only(attributes: Mapping[str, Any], kept: tuple[str, ...]) -> dict[str, Any]:
    return {name: attributes[name] for name in kept if name in attributes}
