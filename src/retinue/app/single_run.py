"""Runs for scripts, notebooks and request handlers: one agent on one task, or on many tasks with progress."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, Unpack, cast

from msgspec import Struct

from retinue.app.dialogue import SpawnOptions
from retinue.app.retinue import Retinue
from retinue.core.format import format_duration, format_used
from retinue.core.outcome import Failure, Outcome, Value
from retinue.core.spec import AgentSpec
from retinue.core.tool import Tool
from retinue.errors import OverBudgetError, UsageError

if TYPE_CHECKING:
    from retinue.app.inbox import Approve
    from retinue.app.output_type import Schema
    from retinue.runs.run import Run


Start = Callable[[str], Awaitable["Run[Any]"]]


class MapProgress(Struct, frozen=True):
    """The progress of a `map` when one of its tasks has ended. `index` and `outcome` are those of that task."""

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
    """Return the outcome of each task, in order. A task that exceeds the budget has an outcome that says so. Other
    launch errors, and errors of `progress`, are raised after the running runs have been stopped."""
    if limit < 1:
        raise UsageError(f"limit={limit} lets no run start.", remedy="Give the number of runs at a time, 1 or more.")
    if isinstance(tasks, str):
        raise UsageError("The tasks are one text.", remedy="Give a list of tasks, also for a single one.")
    for index, task in enumerate(tasks):
        if not isinstance(task, str) or not task.strip():
            raise UsageError(f"Task {index} is empty, or no text.", remedy="Say for each what the agent should do.")
    work = _TaskMap(tasks, start, limit, _listener(progress))
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(len(tasks)):
                group.create_task(work.run(index))
    except ExceptionGroup as failed:
        # The others were only stopped because of this one.
        raise failed.exceptions[0] from None
    return [outcome for outcome in work.outcomes if outcome is not None]


class _TaskMap:
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
            await run.stop("Its fan-out was cancelled.")
            raise

    def _tell(self, index: int) -> None:
        ended = [outcome for outcome in self.outcomes if outcome is not None]
        outcome = self.outcomes[index]
        assert outcome is not None
        failed = sum(not ended_outcome.ok for ended_outcome in ended)
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


Result = TypeVar("Result")


class SingleRunOptions(SpawnOptions, total=False):
    """Options of `run`: those of the run, and those of the `Retinue` that is opened for it."""

    cwd: str | Path
    tools: Sequence[Tool]
    allowed_tools: Sequence[str]
    disallowed_tools: Sequence[str]
    approve: Approve | None
    settings: Mapping[str, Any] | None


async def run_async(
    agent: str | AgentSpec,
    task: str,
    *,
    cwd: str | Path = ".",
    schema: Schema[Value] | None = None,
    tools: Sequence[Tool] = (),
    allowed_tools: Sequence[str] = (),
    disallowed_tools: Sequence[str] = (),
    approve: Approve | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Unpack[SpawnOptions],
) -> Outcome[Value]:
    """Run one agent, wait, and return its outcome. The options are those of `Retinue` and `Retinue.spawn`: `model`,
    `thinking`, `limits`, `budget`, `isolation`, `permission_mode`, `append_system_prompt`."""
    async with Retinue(
        cwd,
        tools=tools,
        allowed_tools=allowed_tools,
        disallowed_tools=disallowed_tools,
        approve=approve,
        settings=settings,
    ) as retinue:
        started = await retinue.spawn(agent, task, schema=schema, background=False, **options)
        return await started.wait()


def run(
    agent: str | AgentSpec, task: str, *, schema: Schema[Value] | None = None, **options: Unpack[SingleRunOptions]
) -> Outcome[Value]:
    """Run one agent and wait, without `await`: `outcome = retinue.run("Explore", "Where is the login?")`.

    If an event loop is already running, as in a notebook or a web server, the agent runs in the event loop of another
    thread while the caller waits. Use `await retinue.run_async(…)`, with the same options, to avoid waiting.
    """
    return _finish(run_async(agent, task, schema=schema, **options))


def _finish(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` and return its result, whether or not this thread has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return cast("Result", _LoopThread(work).finish())


class _LoopThread:
    """A thread with an event loop for one coroutine."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._value: Any = None
        self._error: BaseException | None = None

    def finish(self) -> Any:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._run,), name="retinue.run", daemon=True)
        thread.start()
        try:
            thread.join()
        except KeyboardInterrupt:
            # "Interrupt" in a notebook: the run is stopped and recorded before the caller continues.
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            thread.join()
            raise
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = asyncio.run(self._follow())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            self._error = error

    async def _follow(self) -> Any:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._work)
        return await self._task
