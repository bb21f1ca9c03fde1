"""One run of the agent loop in a test: drive it, keep its events, check what must hold for every run.

The checks raise AssertionError, whatever the model and the tools of the run did.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from retinue.core.events import Body, RunEnded, ToolsEnded, TurnEnded
from retinue.core.messages import AssistantMessage, Message, ToolMessage, user
from retinue.core.outcome import Outcome
from retinue.core.story import Entry, Story, StoryStep
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, ok
from retinue.log.replay import replay
from retinue.loop import Controls, Job, run_loop
from retinue.models.protocol import Model, ModelRequest

_BETWEEN = (
    *("run.created", "run.started", "run.resumed", "run.compacted", "run.warned", "run.mode_changed"),
    *("message.added", "limit.reached"),
)
_AT_TOOLS = ("tool.started", "tool.progress", "tool.ended", "inbox.opened", "inbox.closed", "todos.updated")
_EVENT_ORDER: Mapping[str, Mapping[str, str]] = {
    "between": {**dict.fromkeys(_BETWEEN, "between"), "turn.started": "stream", "run.ended": "ended"},
    "stream": {
        **dict.fromkeys(("text.delta", "thinking.delta", "model.retrying"), "stream"),
        "assistant.ended": "tools",
    },
    # A turn without calls ends right after the answer, without results.
    "tools": {**dict.fromkeys(_AT_TOOLS, "tools"), "tools.ended": "turn end", "turn.ended": "between"},
    "turn end": {"turn.ended": "between"},
    "ended": {},
}
"""The events that may come at each position of a run, with the position behind them."""


def check_grammar(bodies: Iterable[Body]) -> None:
    """Check the order of events that `retinue.core.events` promises, down to the last one."""
    story = Story()
    position, seen = "between", ""
    unanswered: list[str] = []
    running: list[Entry] = []
    for body in bodies:
        # The last events are enough to see what went wrong; a run may have thousands.
        seen = f"{seen[-400:]} {body.type}"
        assert body.type in _EVENT_ORDER[position], f"{body.type} cannot come here:{seen}"
        position = _EVENT_ORDER[position][body.type]
        turn, steps = story.turn, story.take(body)
        if body.type == "turn.started":
            assert turn in (0, story.turn - 1), f"turn {story.turn} after {turn}"
        elif body.type == "assistant.ended":
            unanswered = [entry.call.id for entry in story.calls if entry.call is not None]
            assert len(set(unanswered)) == len(unanswered), "two calls share an id"
        elif position == "tools":
            assert steps or body.type != "tool.progress", "progress of a call that is not running"
            _check_calls(steps, running)
        elif isinstance(body, ToolsEnded):
            assert not running, "results before the last call ended"
            assert [result.call_id for result in body.message.results] == unanswered, "results out of order"
            unanswered = []
        elif isinstance(body, TurnEnded):
            assert not unanswered, "the turn ended without its results"
            assert body.turn == turn, "another turn ended"
    assert position == "ended", f"the run did not end:{seen}"


def _check_calls(steps: Iterable[StoryStep], running: list[Entry]) -> None:
    for step in steps:
        if step.entry.call is not None:
            assert step.change != "added", "an event of a call that is unknown or has ended"
            if step.change == "began":
                assert step.entry not in running, "a call started twice"
                running.append(step.entry)
            elif step.change in ("grew", "ended"):
                assert step.entry in running, f"a call {step.change} that is not running"
            if step.change == "ended":
                running.remove(step.entry)


def check_history(messages: Sequence[Message]) -> None:
    """Check that every call has exactly one result, in order, right after it, and that no message is empty."""
    for index, message in enumerate(messages):
        following = messages[index + 1] if index + 1 < len(messages) else None
        if isinstance(message, AssistantMessage):
            assert message.content, "an empty message of the model is in the history"
            calls = [call.id for call in message.tool_calls]
            results = [r.call_id for r in following.results] if isinstance(following, ToolMessage) else []
            assert calls == results, f"calls {calls} were answered by {results}"
        elif isinstance(message, ToolMessage):
            before = messages[index - 1] if index else None
            assert isinstance(before, AssistantMessage) and before.tool_calls, "results that no call asked for"


def check_prefix(requests: Sequence[ModelRequest], compactions: int = 0) -> None:
    """Check that consecutive requests of a run extend each other, so that the caches of providers hit. Each compaction
    may break the messages once, never the system prompt or the tools."""
    if not requests:
        return
    first = requests[0]
    # Requests for summaries stand apart: they have no tools and another system prompt.
    asked = [request for request in requests if request.system == first.system]
    broken = 0
    for before, after in pairwise(asked):
        assert after.tools == first.tools, "the tools changed during the run"
        if after.messages[: len(before.messages)] != before.messages:
            broken += 1
    assert broken <= compactions, f"the prefix broke {broken} times with {compactions} compactions"


B = TypeVar("B")


class Recording(Struct):
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
        """The conversation, rebuilt from the events."""
        return replay(self.bodies).messages

    def of(self, kind: type[B]) -> list[B]:
        """Return the events of one kind."""
        return [body for body in self.bodies if isinstance(body, kind)]


class FakeTool(Struct, frozen=True):
    """A tool that calls one function with its arguments. The function may be async, may raise, and may return text or
    a whole ToolOutput."""

    name: str
    function: Callable[..., str | ToolOutput | Awaitable[str | ToolOutput]]
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    exclusive: bool = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, f"The tool {self.name}.", self.parameters, exclusive=self.exclusive)

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        result = self.function(**arguments)
        output = await result if inspect.isawaitable(result) else result
        return ok(output) if isinstance(output, str) else output


def job(task: str = "do it", *, tools: Iterable[Tool] = (), root: Path | None = None, **options: Any) -> Job:
    """Return a job with defaults for everything that a test does not care about; `options` are those of Job."""
    folder = root or Path(tempfile.gettempdir())
    options.setdefault("system", "You are a test agent.")
    options.setdefault("messages", (user(task),))
    options.setdefault("context", ToolContext("test-run", (folder,), folder, clearance="person"))
    return Job(tools=tuple(tools), **options)


async def drive(
    model: Model,
    task: str | Job = "do it",
    *,
    controls: Controls | None = None,
    watch: Callable[[Body], object] | None = None,
    **options: Any,
) -> Recording:
    """Run to the end and check what must hold for every run: the order of its events, the shape of its conversation,
    and that no task of it goes on. `watch` is called with every event as it happens: there a test steers, stops or
    asserts."""
    # The test has tasks of its own.
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
    tasks = asyncio.all_tasks() - before
    if tasks:
        raise AssertionError(f"the run left {len(tasks)} task(s) behind: {tasks}")
    return recording
