"""One agent on many tasks: so many at a time, the outcomes in the order of the tasks, progress on the way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct

from retinue.core.format import format_duration, format_used
from retinue.core.outcome import Failure, Outcome
from retinue.errors import OverBudgetError, UsageError

if TYPE_CHECKING:
    from retinue.runs.run import Run

Start = Callable[[str], Awaitable["Run[Any]"]]


class MapProgress(Struct, frozen=True):
    """How far a `map` is, each time one of its tasks has ended. `index` and `outcome` are that task's."""

    done: int
    failed: int
    running: int
    total: int
    index: int
    task: str
    outcome: Outcome[Any]

    def __str__(self) -> str:
        mark = "✓" if self.outcome.ok else "✗"
        if self.outcome.shortfall:
            mark = "!"
        failed = f", {self.failed} failed" if self.failed else ""
        used = format_used(self.outcome.usage, self.outcome.turns, self.outcome.model)
        spent = f"{used} · {format_duration(self.outcome.duration_ms)}"
        task = " ".join(self.task.split())[:60]
        return f"{mark} {self.done} of {self.total}{failed} · {task} · {spent}"


async def map_tasks(
    tasks: Sequence[str], start: Start, *, limit: int, progress: Callable[[MapProgress], object] | bool
) -> list[Outcome[Any]]:
    """Return the outcome of each task, in their order. A task for which no budget is left has an outcome that says so.
    What else cannot be started raises, after the runs at work have been stopped; so does a `progress` that raises."""
    if limit < 1:
        raise UsageError(f"limit={limit} lets no run start.", remedy="Give the number of runs at a time, 1 or more.")
    if isinstance(tasks, str):
        raise UsageError("The tasks are one text.", remedy="Give a list of tasks, also for a single one.")
    for index, task in enumerate(tasks):
        if not isinstance(task, str) or not task.strip():
            raise UsageError(f"Task {index} is empty, or no text.", remedy="Say for each what the agent should do.")
    work = _FanOut(tasks, start, limit, _listener(progress))
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(len(tasks)):
                group.create_task(work.run(index))
    except ExceptionGroup as failed:
        # The others were only stopped because of this one.
        raise failed.exceptions[0] from None
    return [outcome for outcome in work.outcomes if outcome is not None]


class _FanOut:
    def __init__(self, tasks: Sequence[str], start: Start, limit: int, listen: Callable[[MapProgress], object]) -> None:
        self.tasks = tasks
        self.outcomes: list[Outcome[Any] | None] = [None] * len(tasks)
        self._start = start
        self._free = asyncio.Semaphore(limit)
        self._running = 0
        self._listen = listen

    async def run(self, index: int) -> None:
        async with self._free:
            self._running += 1
            try:
                self.outcomes[index] = await self._outcome(self.tasks[index])
            finally:
                self._running -= 1
        self._tell(index)

    async def _outcome(self, task: str) -> Outcome[Any]:
        try:
            run = await self._start(task)
        except OverBudgetError as error:
            return Outcome("over-budget", failure=Failure("budget", error.message, error.remedy))
        try:
            return await run.wait()
        except asyncio.CancelledError:
            await run.stop("The fan-out it belongs to was given up.")
            raise

    def _tell(self, index: int) -> None:
        ended = [outcome for outcome in self.outcomes if outcome is not None]
        outcome = self.outcomes[index]
        assert outcome is not None
        failed = sum(not each.ok for each in ended)
        self._listen(MapProgress(len(ended), failed, self._running, len(self.tasks), index, self.tasks[index], outcome))


def _listener(progress: Callable[[MapProgress], object] | bool) -> Callable[[MapProgress], object]:
    if callable(progress):
        return progress
    if progress:
        return lambda each: _print_line(each, sys.stderr)
    return lambda each: None


def _print_line(progress: MapProgress, stream: TextIO) -> None:
    from retinue.core.controls import escape_controls

    stream.write(f"{escape_controls(str(progress))}\n")
    stream.flush()
