"""Plugins: packages and folders that bring agents, skills, hooks, tools and servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.capabilities.plugins import attach as _attach
    from retinue.capabilities.plugins import tools as _tools
    from retinue.guard.trust import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.services import Extensions
else:
    _attach = LazyModule("retinue.capabilities.plugins.attach")
    _tools = LazyModule("retinue.capabilities.plugins.tools")


class PluginsCapability(Capability):
    """What plugins add to a project, and their tools in its runs."""

    async def offer(self, plan: LaunchPlan) -> None:
        extensions = plan.project.part(_attach.PluginExtensions)
        if plan.request.parent_id is None:
            plan.notes += extensions.notes()
        if extensions.adds_tools_to(plan.spec):
            await _tools.offer_tools(plan)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        specs = [entry.spec for entry in project.catalog().winners]
        return project.part(_attach.PluginExtensions).subjects(specs)


def plugin_extensions(project: Project) -> Extensions:
    """Return what the plugins add to the project."""
    return project.part(_attach.PluginExtensions)
