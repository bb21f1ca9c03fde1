"""The sandbox of a run: which of its programs are confined, and how (`runs/walls.py`).

Children of a read-only run are read-only, because their shells would otherwise act for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from retinue.runs.guard import RunGuards

if TYPE_CHECKING:
    from retinue.core.tool import ToolContext
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.runs.node import RunNode


def put_up_walls(node: RunNode, context: ToolContext) -> None:
    """Confine the programs of a run. Nothing is created before the first program starts."""
    from retinue.runs.walls import SandboxScope, make_walls

    project, run_id = node.project, context.run_id

    def permissions() -> PermissionPolicy:
        return project.part(RunGuards)[run_id].permissions

    scope = SandboxScope(context.roots, context.outputs, node.handle.launch.isolation, context.instead)
    # The rights of the run grow when plan mode ends: its launch of this moment counts.
    context.confine = make_walls(
        project, run_id, scope, permissions, context.environment, lambda: node.handle.launch.readonly
    )


def renew_walls(context: ToolContext) -> None:
    """Let the next command get walls that fit the changed rights of the run."""
    from retinue.guard.walls import RunWalls

    if isinstance(context.confine, RunWalls):
        context.confine.renew()


async def remove_walls(context: ToolContext) -> None:
    """Remove the scratch folders of a run at its end."""
    walls = context.confine
    if walls is None:
        return
    # Shielded, so that a cancelled run leaves no folders. Walls that were never used have none, and need no thread.
    if walls.in_use:
        await asyncio.shield(asyncio.to_thread(walls.close))
    else:
        walls.close()
