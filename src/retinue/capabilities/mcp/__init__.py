"""MCP servers: found, started once, shared by runs, and ended when no run needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, Running
from retinue.runs.services import Servers

if TYPE_CHECKING:
    from retinue.capabilities.mcp import attach as _attach
    from retinue.capabilities.mcp import scope as _scope
    from retinue.capabilities.mcp import servers as _servers
    from retinue.guard.trust import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.mcp.attach")
    _scope = LazyModule("retinue.capabilities.mcp.scope")
    _servers = LazyModule("retinue.capabilities.mcp.servers")


class McpCapability(Capability):
    """The tools of MCP servers: known ones at the launch, others when they appear or are searched for."""

    async def offer(self, plan: LaunchPlan) -> None:
        # Most runs have no server, and load no more than this question needs.
        if plan.late is not None or _scope.finds_servers(plan):
            await _attach.offer_servers(plan)

    def equip(self, plan: LaunchPlan) -> None:
        if plan.late is not None:
            _attach.served_by(plan.late).settle(plan)

    def running(self, node: Run, *, resumed: bool) -> Running | None:
        late = node.launch.late
        return None if late is None else _attach.served_by(late).running(node, resumed=resumed)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        return _servers.server_subjects(project)


class ConfiguredServers(Servers):
    """The servers of settings, of foreign files and of plugins."""

    def names(self) -> frozenset[str]:
        return frozenset(_servers.project_servers(self.project).servers)
