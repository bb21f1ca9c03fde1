"""One agent, one task, one answer: for scripts, notebooks and request handlers that want no more."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from retinue.app.retinue import Retinue
from retinue.core.outcome import Outcome, Value
from retinue.core.spec import AgentSpec
from retinue.core.tool import Tool

if TYPE_CHECKING:
    from retinue.app.inbox import Approve
    from retinue.app.output_type import Schema
    from retinue.core.spec import PermissionMode
    from retinue.core.usage import Budget
    from retinue.models.protocol import Model

T = TypeVar("T")


async def run_async(
    agent: str | AgentSpec,
    task: str,
    *,
    cwd: str | Path = ".",
    model: str | Model | None = None,
    schema: Schema[Value] | None = None,
    tools: Sequence[Tool] = (),
    thinking: str | None = None,
    limits: Mapping[str, float | None] | None = None,
    budget: Budget | Mapping[str, float] | None = None,
    isolation: str | None = None,
    permission_mode: PermissionMode | None = None,
    allowed_tools: Sequence[str] = (),
    disallowed_tools: Sequence[str] = (),
    append_system_prompt: str | None = None,
    approve: Approve | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Outcome[Value]:
    """Run one agent, wait, and return its outcome. The options are those of `Retinue` and `Retinue.spawn`."""
    async with Retinue(
        cwd,
        tools=tools,
        permission_mode=permission_mode,
        allowed_tools=allowed_tools,
        disallowed_tools=disallowed_tools,
        approve=approve,
        settings=settings,
    ) as retinue:
        started = await retinue.spawn(
            agent,
            task,
            model=model,
            schema=schema,
            thinking=thinking,
            limits=limits,
            budget=budget,
            isolation=isolation,
            append_system_prompt=append_system_prompt,
            background=False,
        )
        return await started.wait()


def run(
    agent: str | AgentSpec,
    task: str,
    *,
    cwd: str | Path = ".",
    model: str | Model | None = None,
    schema: Schema[Value] | None = None,
    tools: Sequence[Tool] = (),
    thinking: str | None = None,
    limits: Mapping[str, float | None] | None = None,
    budget: Budget | Mapping[str, float] | None = None,
    isolation: str | None = None,
    permission_mode: PermissionMode | None = None,
    allowed_tools: Sequence[str] = (),
    disallowed_tools: Sequence[str] = (),
    append_system_prompt: str | None = None,
    approve: Approve | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Outcome[Value]:
    """Run one agent and wait, without `await`: `outcome = retinue.run("Explore", "Where is the login?")`.

    Where an event loop already runs, as in a notebook or a web server, the agent gets a loop in a thread of its own,
    and the caller waits: code that must not wait says `await retinue.run_async(…)`. The options are the same.
    """
    return _finish(
        run_async(
            agent,
            task,
            cwd=cwd,
            model=model,
            schema=schema,
            tools=tools,
            thinking=thinking,
            limits=limits,
            budget=budget,
            isolation=isolation,
            permission_mode=permission_mode,
            allowed_tools=allowed_tools,
            disallowed_tools=disallowed_tools,
            append_system_prompt=append_system_prompt,
            approve=approve,
            settings=settings,
        )
    )


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, whether or not this thread has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return cast("T", _LoopThread(work).finish())


class _LoopThread:
    """A thread with an event loop of its own for one piece of work."""

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
            # "Interrupt" in a notebook: the run is stopped and recorded before the caller goes on.
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
