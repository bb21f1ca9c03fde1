"""The list of things to do that a run keeps, and its questions to the run above it or to a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    """The companion of a run, through which its tools ask and note what is to be done."""

    @asynccontextmanager
    async def running(self, node: Run, *, resumed: bool) -> AsyncIterator[RunPart]:
        node.companion = companion = _attach.RunCompanion(node, resumed=resumed)
        try:
            yield RunPart()
        finally:
            await companion.close()

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        if node.companion is not None and isinstance(node.companion, _attach.RunCompanion):
            await node.companion.close()
            node.end_notes += node.companion.notes
        return outcome
