"""Runs one agent loop in a test and keeps everything it said."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from retinue.core.events import Body, RunEnded
from retinue.core.messages import Message, user
from retinue.core.outcome import Outcome
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, ok
from retinue.log.replay import replay
from retinue.loop import Controls, Job, run_loop
from retinue.models.protocol import Model
from retinue.testing.checks import check_grammar, check_history

B = TypeVar("B")


@dataclass(slots=True)
class Recording:
    """The events of a run, in order."""

    bodies: list[Body] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        last = self.bodies[-1] if self.bodies else None
        if not isinstance(last, RunEnded):
            raise AssertionError("the run has not ended")
        return last.outcome

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, as its events tell it."""
        return replay(self.bodies).messages

    def of(self, kind: type[B]) -> list[B]:
        """The events of one kind."""
        return [body for body in self.bodies if isinstance(body, kind)]


@dataclass(frozen=True, slots=True)
class FakeTool:
    """A tool that is one function of its arguments. The function may be async, may raise, and
    may return text or a whole ToolOutput."""

    name: str
    function: Callable[..., str | ToolOutput | Awaitable[str | ToolOutput]]
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    exclusive: bool = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, f"The tool {self.name}.", self.parameters, exclusive=self.exclusive)

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        given = self.function(**arguments)
        output = await given if inspect.isawaitable(given) else given
        return ok(output) if isinstance(output, str) else output


def job(task: str = "do it", *, tools: Iterable[Tool] = (), root: Path | None = None, **options: Any) -> Job:
    """A job with everything filled in that a test does not care about; `options` are Job's."""
    folder = root or Path(tempfile.gettempdir())
    options.setdefault("system", "You are a test agent.")
    options.setdefault("messages", (user(task),))
    options.setdefault("context", ToolContext("test-run", (folder,), folder))
    return Job(tools=tuple(tools), **options)


async def drive(
    model: Model,
    task: str | Job = "do it",
    *,
    controls: Controls | None = None,
    watch: Callable[[Body], object] | None = None,
    **options: Any,
) -> Recording:
    """Runs to the end and checks what must hold for every run: the order of its events, the
    shape of its conversation, and that no task of it goes on. `watch` is called with every
    event as it happens, as the place to steer, stop or assert."""
    before = asyncio.all_tasks()
    recording = Recording()
    work = task if isinstance(task, Job) else job(task, **options)
    async with aclosing(run_loop(work, model, controls or Controls())) as bodies:
        async for body in bodies:
            recording.bodies.append(body)
            if watch is not None:
                watch(body)
    check_grammar(recording.bodies)
    check_history(recording.messages)
    left = asyncio.all_tasks() - before
    if left:
        raise AssertionError(f"the run left {len(left)} task(s) behind: {left}")
    return recording
