"""The walls around a run's commands: what they can change, read and reach."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, Running, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.sandbox import attach as _attach
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.sandbox.attach")


class SandboxCapability(Capability):
    """The walls of a run that has tools which start programs."""

    def running(self, node: Run, *, resumed: bool) -> Running | None:
        # Language servers have a sandbox of their own, in which the walls of the run say what is hidden.
        if any(tool.spec.confinable or tool.spec.name == "lsp" for tool in node.launch.tools):
            return nullcontext(RunPart(lambda context: _attach.put_up_walls(node, context)))
        return None
