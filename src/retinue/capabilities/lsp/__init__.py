"""Language servers: real ones, over their standard streams, shared by the runs of a process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, Running, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.lsp import attach as _attach
    from retinue.capabilities.lsp import catalog as _catalog
    from retinue.core.tool import Tool
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.lsp.attach")
    _catalog = LazyModule("retinue.capabilities.lsp.catalog")


class LspCapability(Capability):
    """The tool that asks language servers, and their diagnostics after an edit."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        if "lsp" in project.unavailable or not project.settings.settings.lsp_enabled:
            return {}
        return {"lsp": project.part(_attach.Languages).tool()}

    async def offer(self, plan: LaunchPlan) -> None:
        if "lsp" in plan.available and (plan.request.depth > 0 or plan.spec.dialect == "devkit"):
            _attach.limit_tool(plan)

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        if find_spec("lsprotocol") is not None:
            search = project.environment.get("PATH")
            kinds = _catalog.server_kinds(project.settings.settings.lsp_servers)
            if any(kind.enabled and kind.program(search) is not None for kind in kinds):
                return {}
        return {"lsp": "no language server is installed."}

    def running(self, node: Run, *, resumed: bool) -> Running | None:
        launch, project = node.launch, node.project
        if not any(tool.spec.name == "lsp" for tool in launch.tools):
            return None
        return nullcontext(RunPart(wrap=lambda inner: _attach.add_diagnostics(launch, project, inner)))
