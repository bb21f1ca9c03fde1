"""The sandbox of a run's programs: what they can change, read and reach (`runs/guard.py`).

Children of a read-only run are read-only, because their shells would otherwise act for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, RunPart
from retinue.runs.guard import RunGuards, SandboxScope, make_walls

if TYPE_CHECKING:
    from retinue.core.tool import ToolContext
    from retinue.runs.run import Run


class SandboxCapability(Capability):
    """The sandbox of a run that has tools which start programs. None is created before the first program starts."""

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        def confine(context: ToolContext) -> ToolContext:
            scope = SandboxScope(context.roots, context.outputs, node.launch.isolation, context.instead)
            guards = node.project.part(RunGuards)
            context.confine = make_walls(
                node.project,
                context.run_id,
                scope,
                lambda: guards[context.run_id].permissions,
                context.environment,
                # The rights of the run grow when plan mode ends.
                lambda: node.readonly,
            )
            return context

        # Language servers have a sandbox of their own, which hides what that of the run hides.
        if any(tool.spec.confinable or tool.spec.name == "lsp" for tool in node.launch.tools):
            return RunPart(confine)
        return None
