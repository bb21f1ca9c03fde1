"""The record of what runs change: checkpoints, the line of record in their results, and undo."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, Running, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.audit import attach as _attach
    from retinue.core.outcome import Outcome
    from retinue.core.tool import Wrap
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.audit.attach")


class AuditCapability(Capability):
    """The audit of a run. Nothing is opened before a tool changes something."""

    def running(self, node: Run, *, resumed: bool) -> Running:
        audit = _attach.Audit(node, resumed=resumed)
        node.put(audit)

        def wrap(inner: Wrap) -> Wrap:
            return lambda tools: audit.tools(inner(tools))

        return nullcontext(RunPart(audit.context, wrap, observe=audit.observe))

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        audit = node.get(_attach.Audit)
        return outcome if audit is None else await audit.finish(outcome)
