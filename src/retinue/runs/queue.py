"""The slots of background runs, and a run from its place in the queue to its end.

First come, first served, with a limit that can change live. Foreground and nested runs never pass
through here, so a parent that waits for its child cannot keep the child from starting. A foreground
run that is moved to the background takes a slot then.
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
    """`limit` runs hold a slot at once; the others wait in the order they came."""

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 1)
        self._holding: set[str] = set()
        self._waiting: OrderedDict[str, asyncio.Future[None]] = OrderedDict()

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Raising it starts waiting runs at once; lowering it lets running ones finish."""
        self._limit = max(limit, 1)
        self._admit()

    @property
    def running(self) -> int:
        return len(self._holding)

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def position(self, run_id: str) -> int | None:
        """1 for the next to start; None when it is not waiting."""
        return next((number for number, each in enumerate(self._waiting, 1) if each == run_id), None)

    def join(self, run_id: str) -> asyncio.Future[None]:
        """Take a place in the line, now. The future is done when the run holds a slot, and
        cancelled when it left the line before."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[run_id] = place
        self._admit()
        return place

    def hold(self, run_id: str) -> None:
        """Give a slot to a run that works already, also beyond the limit: nobody else starts until one is free."""
        self._holding.add(run_id)

    def leave(self, run_id: str) -> None:
        """Return the slot or the place in the queue, if the run has one."""
        place = self._waiting.pop(run_id, None)
        if place is not None:
            place.cancel()
        self._holding.discard(run_id)
        self._admit()

    def rest(self, run_id: str) -> None:
        """Return the slot of a run that waits for a person."""
        self._holding.discard(run_id)
        self._admit()

    async def wake(self, run_id: str) -> None:
        """Take a slot again, behind those who wait for one already. Several calls of one run
        may want it back at once; cancelling one of them takes nothing from the others."""
        if run_id in self._holding:
            return
        place = self._waiting.get(run_id) or self.join(run_id)
        await asyncio.wait({place})

    def _admit(self) -> None:
        while self._waiting and len(self._holding) < self._limit:
            run_id, place = self._waiting.popitem(last=False)
            if not place.cancelled():
                self._holding.add(run_id)
                place.set_result(None)


Place = asyncio.Future[None]


def take_place(node: Run, queue: RunQueue) -> Place | None:
    """A place in the line, or None for who needs none: whoever waits for a nested or a
    foreground run may hold a slot."""
    place = None
    if node.state.background and _needs_slot(node) and not node.controls.stopping:
        place = queue.join(node.id)
    node.queue = queue if place is not None else None
    node.state.state = "queued" if place is not None and not place.done() else "starting"
    return place


def take_slot(node: Run, queue: RunQueue) -> None:
    """Count a run that was moved to the background. One that waits for a person takes its slot when it goes on."""
    if not _needs_slot(node):
        return
    node.queue = queue
    if not node.state.asks:
        queue.hold(node.id)


def _needs_slot(node: Run) -> bool:
    return node.queues and node.depth <= 1


async def attend(
    node: Run,
    queue: RunQueue,
    place: Place | None,
    past: Conversation | None,
    news: UserMessage | None,
) -> None:
    """Run one attempt from its place in the queue to its end. However that comes, the slot is free then."""
    controls, cwd = node.controls, node.launch.request.cwd
    waits = place is not None and not place.done()
    try:
        if place is not None:
            await _slot(controls, place)
        if controls.stopping:
            await never_started(node, "stopped", Failure("stopped", "Stopped before it had started."))
        elif waits and not cwd.is_dir():
            # It may have waited for long.
            gone = f"The working directory {cwd} does not exist any more."
            await never_started(node, "error", Failure("not_found", gone, "Make it again and resume."))
        else:
            node.state.state = "starting"
            await execute(node, past, news)
    finally:
        queue.leave(node.id)


async def abandon(node: Run) -> None:
    """Whoever asked for the run is gone before it began: it ends where it is."""
    node.stopped_by = "agent"
    failure = Failure("stopped", "Stopped with the call that asked for it, before it had started.")
    await never_started(node, "stopped", failure)
    node.account.close()


async def _slot(controls: Controls, place: Place) -> None:
    """Wait in the line. A run that is stopped there leaves it, which ends the wait."""
    try:
        await place
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not controls.stopping or (task is not None and task.cancelling()):
            raise
