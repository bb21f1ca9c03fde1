"""OpenTelemetry: each run, model request, tool call and wait as a span, translated from the events of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, loaded_module

if TYPE_CHECKING:
    from retinue.core.outcome import Outcome
    from retinue.core.tool import ToolContext
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class TelemetryCapability(Capability):
    """Traces and metrics of the runs of this process. Nothing is loaded while the setting `telemetry` is off."""

    async def restrict(self, plan: LaunchPlan) -> None:
        # Here, because the subscription must be there before the first event of the run is written.
        if plan.settings.telemetry == "off":
            return
        from retinue.capabilities.telemetry.attach import start_tracing

        start_tracing(plan)

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        if node.project.settings.settings.telemetry == "off":
            return context
        from retinue.capabilities.telemetry.attach import pass_trace_on

        return pass_trace_on(node, context)

    def request_headers(self, node: RunNode) -> Callable[[], Mapping[str, str]] | None:
        settings = node.project.settings.settings
        if settings.telemetry == "off" or not settings.telemetry_model_header:
            return None
        from retinue.capabilities.telemetry.attach import headers_of_requests

        return headers_of_requests(node)

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        if node.project.settings.settings.telemetry != "off":
            from retinue.capabilities.telemetry.attach import say_failure

            say_failure(node)
        return outcome

    async def close_project(self, project: Project) -> None:
        attach = loaded_module("retinue.capabilities.telemetry.attach")
        if attach is not None and project.has_part(attach.Tracing):
            await project.part(attach.Tracing).close()
