"""The runs of a process and the tasks that carry them out.

The slots of background runs, and a run from its place in the queue to its end.

First come, first served, with a limit that can change live. Foreground and nested runs never pass
through here, so a parent that waits for its child cannot keep the child from starting. A foreground
run that is moved to the background takes a slot then.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from retinue.core.messages import UserMessage
from retinue.core.outcome import Ended, Failure, Outcome, StoppedBy
from retinue.runs.execute import end_unstarted, execute
from retinue.runs.run import Run, SlotQueue

if TYPE_CHECKING:
    from retinue.log.replay import Conversation
    from retinue.loop.job import Controls
    from retinue.runs.notifications import Notifications
    from retinue.runs.project import Project
    from retinue.runs.run import Run


class Members:
    """Every run of this process by its id, and the task of each that lives."""

    queue: SlotQueue

    def __init__(self) -> None:
        self.members: dict[str, Run] = {}
        self._rooms: dict[str, Notifications] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether any run lives."""
        return bool(self._tasks)

    def stop(self, run: Run, reason: str, *, by: StoppedBy = "person") -> bool:
        """End one run, as `stopped`, with what it has said; its foreground children go with it.
        One that is still queued never starts. False once it has ended."""
        if not run.controls.stop(reason):
            return False
        run.stopped_by = run.stopped_by or by
        if run.status == "queued":
            self.queue.leave(run.id)
        return True

    def stop_tree(self, top: Run, reason: str, *, by: StoppedBy = "person") -> int:
        """End a run and everything below it, background runs too. Return their number."""
        return sum(self.stop(run, reason, by=by) for run in (top, *top.descendants()) if run.live)

    async def end_tree(self, top: Run, reason: str, *, by: StoppedBy = "person") -> int:
        """The same, and waits until each of them has its ending."""
        tree = (top, *top.descendants())
        stopped = self.stop_tree(top, reason, by=by)
        tasks = {self._tasks[run.id] for run in tree if run.id in self._tasks}
        if tasks:
            await asyncio.wait(tasks)
        return stopped

    async def stop_all(self, reason: str, *, by: StoppedBy = "person") -> int:
        """Stop every live run and wait until each has its ending. Return their number."""
        stopped = sum(self.stop(run, reason, by=by) for run in list(self.members.values()) if run.live)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return stopped

    async def wait_all(self) -> None:
        """Return when no run lives or waits any more. Never raises for how they ended."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def cut_off(self) -> None:
        """Leave every live run where it is, without an ending: another process goes on with it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, run: Run) -> None:
        """Drop an ended run from memory. Its name stays its own, and the log has the rest."""
        self.members.pop(run.id, None)
        self._rooms.pop(run.id, None)
        if run.parent is not None and run in run.parent.children:
            run.parent.children.remove(run)


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
    project: Project,
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
            await never_started(node, project, "stopped", Failure("stopped", "Stopped before it had started."))
        elif waits and not cwd.is_dir():
            # It may have waited for long.
            gone = f"The working directory {cwd} does not exist any more."
            await never_started(node, project, "error", Failure("not_found", gone, "Make it again and resume."))
        else:
            node.state.state = "starting"
            await execute(node, project, past, news)
    finally:
        queue.leave(node.id)


async def abandon(node: Run, project: Project) -> None:
    """Whoever asked for the run is gone before it began: it ends where it is."""
    node.stopped_by = "agent"
    failure = Failure("stopped", "Stopped with the call that asked for it, before it had started.")
    await never_started(node, project, "stopped", failure)
    node.account.close()


async def _slot(controls: Controls, place: Place) -> None:
    """Wait in the line. A run that is stopped there leaves it, which ends the wait."""
    try:
        await place
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not controls.stopping or (task is not None and task.cancelling()):
            raise


async def never_started(node: Run, project: Project, ended: Ended, failure: Failure) -> None:
    """Give a run that has not begun its ending."""
    await end_unstarted(node, project, Outcome(ended, failure=failure, model=node.launch.model_name))
