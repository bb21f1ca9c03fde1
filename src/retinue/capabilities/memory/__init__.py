"""The memory of an agent from one run to the next: one folder, an index in its prompt, tools that reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.capabilities.memory import attach as _attach
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.memory.attach")


class MemoryCapability(Capability):
    """The memory of agents whose file asks for one."""

    def equip(self, plan: LaunchPlan) -> None:
        if plan.spec.memory is not None and plan.settings.memory_enabled:
            _attach.add_memory(plan)

    def brief(self, plan: LaunchPlan) -> None:
        if plan.spec.memory is not None:
            memory = plan.get(_attach.Memory)
            if memory is not None:
                plan.tell("memory", memory.block())

    async def running(self, node: Run, *, resumed: bool) -> None:
        if node.launch.request.spec.memory is not None:
            _attach.make_folder(node)
