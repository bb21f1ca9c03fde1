"""The list of things to do that a run keeps, and its questions to the run above it or to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.questions import attach as _attach
    from retinue.core.outcome import Outcome
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.questions.attach")


class QuestionsCapability(Capability):
    """The dialogue of a run, through which its tools ask and note what is to be done."""

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        node.dialogue = _attach.SupervisedDialogue(node, resumed=resumed)
        return RunPart(close=_close_dialogue)

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.dialogue is not None and isinstance(node.dialogue, _attach.SupervisedDialogue):
            await node.dialogue.close()
            node.end_notes += node.dialogue.notes
        return outcome


async def _close_dialogue(node: Run) -> None:
    if node.dialogue is not None and isinstance(node.dialogue, _attach.SupervisedDialogue):
        await node.dialogue.close()
