"""The runs of a process and the tasks that carry them out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from retinue.core.outcome import StoppedBy
from retinue.runs.run import Run, SlotQueue

if TYPE_CHECKING:
    from retinue.runs.notifications import Notifications


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
