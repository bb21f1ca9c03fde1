"""Plugins: packages and folders that bring agents, skills, hooks, tools and servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Extensions, Project


class PluginsCapability(Capability):
    """What plugins add to a project, and their tools in its runs."""

    def extensions(self, project: Project) -> Extensions:
        from retinue.capabilities.plugins.attach import PluginExtensions

        return project.part(PluginExtensions)

    async def offer(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.plugins.attach import PluginExtensions

        extensions = plan.project.part(PluginExtensions)
        if plan.request.parent_id is None:
            plan.notes += extensions.notes()
        if extensions.adds_tools_to(plan.spec):
            from retinue.capabilities.plugins.tools import offer_tools

            await offer_tools(plan)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        from retinue.capabilities.plugins.attach import PluginExtensions

        specs = [entry.spec for entry in project.catalog().winners]
        return project.part(PluginExtensions).subjects(specs)
