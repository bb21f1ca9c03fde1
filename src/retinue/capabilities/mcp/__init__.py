"""MCP servers: found, started once, shared by runs, and ended when no run needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, Wrap, loaded_module

if TYPE_CHECKING:
    from retinue.capabilities.mcp.attach import Served
    from retinue.core.tool import Tool
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class McpCapability(Capability):
    """The tools of MCP servers: known ones at the launch, others when they appear or are searched for."""

    async def offer(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.mcp.scope import may_have_servers

        if may_have_servers(plan.spec):
            from retinue.capabilities.mcp.attach import offer_servers

            await offer_servers(plan)

    def equip(self, plan: LaunchPlan) -> None:
        served = _served(plan)
        if served is not None:
            served.settle(plan)

    async def open(self, node: RunNode, *, resumed: bool) -> None:
        served = _served(node)
        if served is not None:
            served.hold()

    def connect(self, node: RunNode, tools: tuple[Tool, ...], wrap: Wrap, *, resumed: bool) -> None:
        served = _served(node)
        if served is not None:
            served.connect(node, wrap, resumed=resumed)

    def late_tools(self, node: RunNode) -> Callable[[], tuple[Tool, ...]] | None:
        served = _served(node)
        return None if served is None else served.late

    def later_tool_names(self, launch: Launch) -> frozenset[str]:
        served = _served(launch)
        return frozenset() if served is None else served.names

    def limit_resumed(self, launch: Launch, had: frozenset[str]) -> None:
        served = _served(launch)
        if served is not None and not served.has_parent:
            served.limit_to(had)

    async def close(self, node: RunNode) -> None:
        served = _served(node)
        if served is not None:
            served.release()

    def server_names(self, project: Project) -> frozenset[str]:
        from retinue.capabilities.mcp.servers import project_servers

        return frozenset(project_servers(project).servers)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        from retinue.capabilities.mcp.servers import server_subjects

        return server_subjects(project)

    async def close_project(self, project: Project) -> None:
        pool = loaded_module("retinue.capabilities.mcp.pool")
        if pool is not None:
            await pool.loop_pool().close_unused()


def _served(holder: Launch | LaunchPlan | RunNode) -> Served | None:
    # A run can have servers only if the module that makes them is loaded.
    attach = loaded_module("retinue.capabilities.mcp.attach")
    return None if attach is None else holder.get(attach.Served)
