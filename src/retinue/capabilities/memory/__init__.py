"""What an agent remembers from one run to the next: one folder, an index in its prompt, tools that reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.core.permission import Permissions
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode


class MemoryCapability(Capability):
    """The memory of agents whose file asks for one."""

    def equip(self, plan: LaunchPlan) -> None:
        if plan.spec.memory is None or not plan.settings.memory_enabled:
            return
        from retinue.capabilities.memory.attach import add_memory

        add_memory(plan)

    def brief(self, plan: LaunchPlan) -> None:
        if plan.spec.memory is None:
            return
        from retinue.capabilities.memory.attach import Memory

        memory = plan.get(Memory)
        if memory is not None:
            plan.tell("memory", memory.block())

    async def open(self, node: RunNode, *, resumed: bool) -> None:
        if node.handle.launch.request.spec.memory is not None:
            from retinue.capabilities.memory.attach import make_folder

            make_folder(node)

    def permissions(self, node: RunNode, inner: Permissions) -> Permissions:
        if node.handle.launch.request.spec.memory is None:
            return inner
        from retinue.capabilities.memory.attach import allow_own_memory

        return allow_own_memory(node, inner)
