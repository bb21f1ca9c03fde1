"""The record of what runs change: checkpoints, the line of record in their results, and undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, Wrap, loaded_module

if TYPE_CHECKING:
    from retinue.capabilities.audit.attach import Audit
    from retinue.core.events import Body
    from retinue.core.outcome import Outcome
    from retinue.core.tool import ToolContext
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class AuditCapability(Capability):
    """The audit of a run. Nothing is opened before a tool changes something."""

    async def open(self, node: RunNode, *, resumed: bool) -> None:
        from retinue.capabilities.audit.attach import Audit

        node.put(Audit(node, resumed=resumed))

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        return _audit(node).context(context)

    def wrap(self, node: RunNode, inner: Wrap, *, resumed: bool) -> Wrap:
        audit = _audit(node)
        return lambda tools: audit.tools(inner(tools))

    def observer(self, node: RunNode) -> Callable[[Body], None]:
        return _audit(node).observe

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        from retinue.capabilities.audit.attach import Audit

        audit = node.get(Audit)
        return outcome if audit is None else await audit.finish(outcome)

    async def close_project(self, project: Project) -> None:
        attach = loaded_module("retinue.capabilities.audit.attach")
        if attach is not None and project.has_part(attach.CheckpointStore):
            await project.part(attach.CheckpointStore).close(project)


def _audit(node: RunNode) -> Audit:
    from retinue.capabilities.audit.attach import Audit

    audit = node.get(Audit)
    assert audit is not None, "the run has begun"
    return audit
