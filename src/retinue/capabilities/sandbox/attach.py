"""The sandbox of a run: which of its programs are confined, and how (`runs/walls.py`).

Children of a read-only run are read-only, because their shells would otherwise act for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.guard import RunGuards, SandboxScope, make_walls

if TYPE_CHECKING:
    from retinue.core.tool import ToolContext
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.runs.run import Run


def put_up_walls(node: Run, context: ToolContext) -> ToolContext:
    """Confine the programs of a run. Nothing is created before the first program starts."""
    project, run_id = node.project, context.run_id

    def permissions() -> PermissionPolicy:
        return project.part(RunGuards)[run_id].permissions

    scope = SandboxScope(context.roots, context.outputs, node.launch.isolation, context.instead)
    # The rights of the run grow when plan mode ends: its launch of this moment counts.
    context.confine = make_walls(project, run_id, scope, permissions, context.environment, lambda: node.launch.readonly)
    return context
