"""The walls around a run's commands: what they can change, read and reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.core.tool import ToolContext
    from retinue.runs.node import RunNode


class SandboxCapability(Capability):
    """The walls of a run that has tools which start programs."""

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        # Language servers have a sandbox of their own, in which the walls of the run say what is hidden.
        if any(tool.spec.confinable or tool.spec.name == "lsp" for tool in node.handle.launch.tools):
            from retinue.capabilities.sandbox.attach import put_up_walls

            put_up_walls(node, context)
        return context

    def change_rights(self, node: RunNode, context: ToolContext) -> None:
        if context.confine is not None:
            from retinue.capabilities.sandbox.attach import renew_walls

            renew_walls(context)

    async def end_calls(self, node: RunNode, context: ToolContext) -> None:
        if context.confine is not None:
            from retinue.capabilities.sandbox.attach import remove_walls

            await remove_walls(context)
