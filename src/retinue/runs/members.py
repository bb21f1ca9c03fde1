"""The runs of one process in memory: stopping them, waiting for them, letting go of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from retinue.core.outcome import StoppedBy

if TYPE_CHECKING:
    from retinue.runs.node import RunNode
    from retinue.runs.notifications import Notifications
    from retinue.runs.queue import RunQueue


class Members:
    """Every run of this process by its id, and the task of each that lives."""

    queue: RunQueue

    def __init__(self) -> None:
        self.members: dict[str, RunNode] = {}
        self._rooms: dict[str, Notifications] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether any run lives."""
        return bool(self._tasks)

    def stop(self, node: RunNode, reason: str, *, by: StoppedBy = "person") -> bool:
        """End one run, as `stopped`, with what it has said; its foreground children go with it.
        One that is still queued never starts. False once it has ended."""
        if not node.handle.controls.stop(reason):
            return False
        node.stopped_by = node.stopped_by or by
        if node.status == "queued":
            self.queue.leave(node.id)
        return True

    def stop_tree(self, node: RunNode, reason: str, *, by: StoppedBy = "person") -> int:
        """End a run and everything below it, background runs too. Return their number."""
        return sum(self.stop(each, reason, by=by) for each in (node, *node.descendants()) if each.live)

    async def end_tree(self, node: RunNode, reason: str, *, by: StoppedBy = "person") -> int:
        """The same, and waits until each of them has its ending."""
        whole = (node, *node.descendants())
        stopped = self.stop_tree(node, reason, by=by)
        tasks = {self._tasks[each.id] for each in whole if each.id in self._tasks}
        if tasks:
            await asyncio.wait(tasks)
        return stopped

    async def stop_all(self, reason: str, *, by: StoppedBy = "person") -> int:
        """Stop every live run and wait until each has its ending. Return their number."""
        stopped = sum(self.stop(node, reason, by=by) for node in list(self.members.values()) if node.live)
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

    def forget(self, node: RunNode) -> None:
        """Drop an ended run from memory. Its name stays its own, and the log has the rest."""
        self.members.pop(node.id, None)
        self._rooms.pop(node.id, None)
        if node.parent is not None and node in node.parent.children:
            node.parent.children.remove(node)
