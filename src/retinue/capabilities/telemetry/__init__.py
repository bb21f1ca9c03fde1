"""OpenTelemetry: each run, model request, tool call and wait is a span, translated from the events of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.telemetry import attach as _attach
    from retinue.core.outcome import Outcome
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.telemetry.attach")


class TelemetryCapability(Capability):
    """Traces and metrics of the runs of this process. Nothing is loaded while the setting `telemetry` is off."""

    async def restrict(self, plan: LaunchPlan) -> None:
        # The subscription must exist before the first event of the run is written.
        if plan.settings.telemetry != "off":
            _attach.start_tracing(plan)

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        settings = node.project.settings.settings
        if settings.telemetry == "off":
            return None
        headers = _attach.request_headers(node) if settings.telemetry_model_header else None
        return RunPart(lambda context: _attach.add_traceparent(node, context), request_headers=headers)

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.project.settings.settings.telemetry != "off":
            _attach.note_failure(node)
        return outcome
