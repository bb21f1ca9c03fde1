"""Language servers: real ones, over their standard streams, shared by the runs of a process."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, Wrap, loaded_module

if TYPE_CHECKING:
    from retinue.core.tool import Tool
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class LspCapability(Capability):
    """The tool that asks language servers, and their diagnostics after an edit."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        if "lsp" in project.unavailable or not project.settings.settings.lsp_enabled:
            return {}
        from retinue.capabilities.lsp.attach import Languages

        return {"lsp": project.part(Languages).tool()}

    async def offer(self, plan: LaunchPlan) -> None:
        if "lsp" in plan.available and (plan.request.depth > 0 or plan.spec.dialect == "devkit"):
            from retinue.capabilities.lsp.attach import limit_tool

            limit_tool(plan)

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        if find_spec("lsprotocol") is not None:
            from retinue.capabilities.lsp.catalog import server_kinds

            search = project.environment.get("PATH")
            kinds = server_kinds(project.settings.settings.lsp_servers)
            if any(kind.enabled and kind.program(search) is not None for kind in kinds):
                return {}
        return {"lsp": "no language server is installed."}

    def wrap(self, node: RunNode, inner: Wrap, *, resumed: bool) -> Wrap:
        if not any(tool.spec.name == "lsp" for tool in node.handle.launch.tools):
            return inner
        from retinue.capabilities.lsp.attach import add_diagnostics

        return add_diagnostics(node.handle.launch, node.project, inner)

    async def close_project(self, project: Project) -> None:
        # A project that never asked a language server has not loaded the module; importing it here would be in vain.
        attach = loaded_module("retinue.capabilities.lsp.attach")
        if attach is not None and project.has_part(attach.Languages):
            await project.part(attach.Languages).close()
