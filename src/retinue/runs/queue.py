"""The slots of background runs, and the execution of a run from the queue to its end.

Runs are served in the order of their arrival, and the number of slots can change at any time. Foreground and nested
runs need no slot, so a parent that waits for its child cannot keep the child from starting. A foreground run that is
moved to the background takes a slot.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from retinue.core.messages import UserMessage
from retinue.core.outcome import Failure
from retinue.runs.execute import execute, never_started
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.log.replay import Conversation
    from retinue.loop.job import Controls


class RunQueue:
    """Gives slots to at most `limit` runs; the others wait in the order of their arrival."""

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 1)
        self._with_slot: set[str] = set()
        self._waiting: OrderedDict[str, asyncio.Future[None]] = OrderedDict()

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Change the number of slots. More slots start waiting runs at once; running ones are never interrupted."""
        self._limit = max(limit, 1)
        self._admit()

    @property
    def running(self) -> int:
        return len(self._with_slot)

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def position(self, run_id: str) -> int | None:
        """Return 1 for the next run to start; None for a run that does not wait."""
        return next((number for number, waiting_id in enumerate(self._waiting, 1) if waiting_id == run_id), None)

    def join(self, run_id: str) -> asyncio.Future[None]:
        """Enter the queue. The future is done when the run gets a slot, and cancelled if it leaves the queue before."""
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[run_id] = slot
        self._admit()
        return slot

    def occupy(self, run_id: str) -> None:
        """Give a slot to a run that works already, even beyond the limit. No other run starts until a slot is free."""
        self._with_slot.add(run_id)

    def leave(self, run_id: str) -> None:
        """Return the slot, or leave the queue."""
        slot = self._waiting.pop(run_id, None)
        if slot is not None:
            slot.cancel()
        self._with_slot.discard(run_id)
        self._admit()

    def pause(self, run_id: str) -> None:
        """Return the slot of a run that waits for a person."""
        self._with_slot.discard(run_id)
        self._admit()

    async def resume(self, run_id: str) -> None:
        """Wait for a slot again, behind the waiting runs. Several calls of one run may do this at once; cancelling one
        of them does not affect the others."""
        if run_id in self._with_slot:
            return
        slot = self._waiting.get(run_id) or self.join(run_id)
        await asyncio.wait({slot})

    def _admit(self) -> None:
        while self._waiting and len(self._with_slot) < self._limit:
            run_id, slot = self._waiting.popitem(last=False)
            if not slot.cancelled():
                self._with_slot.add(run_id)
                slot.set_result(None)


Slot = asyncio.Future[None]


def enter_queue(node: Run, queue: RunQueue) -> Slot | None:
    """Enter the queue, and return the future slot; None for a run that needs no slot: the run that waits for a nested
    or foreground run may occupy one."""
    slot = None
    if node.state.background and _needs_slot(node) and not node.controls.stopping:
        slot = queue.join(node.id)
    node.queue = queue if slot is not None else None
    node.state.state = "queued" if slot is not None and not slot.done() else "starting"
    return slot


def occupy_slot(node: Run, queue: RunQueue) -> None:
    """Give a slot to a run that was moved to the background. A run that waits for a person gets it when it
    continues."""
    if not _needs_slot(node):
        return
    node.queue = queue
    if not node.state.asks:
        queue.occupy(node.id)


def _needs_slot(node: Run) -> bool:
    return node.queues and node.depth <= 1


async def execute_queued(
    node: Run,
    queue: RunQueue,
    slot: Slot | None,
    past: Conversation | None,
    news: UserMessage | None,
) -> None:
    """Execute one attempt from the queue to its end, and then free the slot in any case."""
    controls, cwd = node.controls, node.launch.request.cwd
    waits = slot is not None and not slot.done()
    try:
        if slot is not None:
            await _wait_for_slot(controls, slot)
        if controls.stopping:
            await never_started(node, "stopped", Failure("stopped", "Stopped before it had started."))
        elif waits and not cwd.is_dir():
            # The folder may have been removed while the run waited.
            text = f"The working directory {cwd} does not exist any more."
            await never_started(node, "error", Failure("not_found", text, "Create it again, and resume the run."))
        else:
            node.state.state = "starting"
            await execute(node, past, news)
    finally:
        queue.leave(node.id)


async def stop_unstarted(node: Run) -> None:
    """Stop a run whose caller was cancelled before the run began."""
    node.stopped_by = "agent"
    failure = Failure("stopped", "Stopped with the call that asked for it, before it had started.")
    await never_started(node, "stopped", failure)
    node.account.close()


async def _wait_for_slot(controls: Controls, slot: Slot) -> None:
    """Wait for the slot. A run that is stopped meanwhile leaves the queue, which ends the wait."""
    try:
        await slot
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not controls.stopping or (task is not None and task.cancelling()):
            raise
