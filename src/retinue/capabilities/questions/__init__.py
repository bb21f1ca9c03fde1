"""The list of things to do that a run keeps, and its questions to the run above it or to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.core.outcome import Outcome
    from retinue.core.tool import ToolContext
    from retinue.runs.node import RunNode


class QuestionsCapability(Capability):
    """The companion of a run, through which its tools ask and note what is to be done."""

    async def open(self, node: RunNode, *, resumed: bool) -> None:
        from retinue.capabilities.questions.attach import RunCompanion

        node.put(RunCompanion(node, resumed=resumed))

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        from retinue.capabilities.questions.attach import RunCompanion

        context.companion = node.get(RunCompanion)
        return context

    def remind(self, node: RunNode) -> str:
        from retinue.capabilities.questions.attach import RunCompanion

        companion = node.get(RunCompanion)
        if companion is None:
            return ""
        return companion.reminder()

    def hear(self, node: RunNode, text: str) -> bool:
        from retinue.capabilities.questions.attach import RunCompanion

        companion = node.get(RunCompanion)
        return companion is not None and companion.hear(text)

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        from retinue.capabilities.questions.attach import RunCompanion

        companion = node.get(RunCompanion)
        if companion is not None:
            await companion.close()
            node.end_notes += companion.notes
        return outcome

    async def close(self, node: RunNode) -> None:
        from retinue.capabilities.questions.attach import RunCompanion

        companion = node.get(RunCompanion)
        if companion is not None:
            await companion.close()
