"""One run of the agent loop in a test: drive it, keep its events, check what must hold for every run.

The checks raise AssertionError, whatever the model and the tools of the run did.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, assert_never

from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    InboxClosed,
    InboxOpened,
    LimitReached,
    MessageAdded,
    ModeChanged,
    Retrying,
    RunCreated,
    RunEnded,
    RunResumed,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    TodosUpdated,
    ToolEnded,
    ToolProgress,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, user
from retinue.core.outcome import Outcome
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, ok
from retinue.log.replay import replay
from retinue.loop import Controls, Job, run_loop
from retinue.models.protocol import Model, ModelRequest

_BETWEEN = (RunCreated, RunStarted, RunResumed, MessageAdded, Compacted, Warned, LimitReached, ModeChanged)
_STREAM = (TextDelta, ThinkingDelta, Retrying)


def check_grammar(bodies: Iterable[Body]) -> None:
    """Check the order of events that `retinue.core.events` promises, down to the last one."""
    grammar = _Grammar()
    for body in bodies:
        grammar.take(body)
    assert grammar.position == "ended", f"the run did not end:{grammar.seen}"


class _Grammar:
    """The position in a run: between turns, in the model's stream, at the tools, at the end."""

    def __init__(self) -> None:
        self.position: Literal["between", "stream", "tools", "turn end", "ended"] = "between"
        self.seen = ""
        self._turn: int | None = None
        self._calls: dict[str, ToolCall] = {}
        self._running: set[str] = set()
        self._ended: set[str] = set()

    def take(self, body: Body) -> None:
        # The last events are enough to see what went wrong; a run may have thousands.
        self.seen = f"{self.seen[-400:]} {body.type}"
        match self.position, body:
            case "between", TurnStarted():
                assert self._turn is None or body.turn == self._turn + 1, f"turn {body.turn} after {self._turn}"
                self._turn, self.position = body.turn, "stream"
            case "between", RunEnded():
                self.position = "ended"
            case "between", _ if isinstance(body, _BETWEEN):
                pass
            case "stream", AssistantEnded():
                self._calls = {call.id: call for call in body.message.tool_calls}
                assert len(self._calls) == len(body.message.tool_calls), "two calls share an id"
                self._ended, self.position = set(), "tools"
            case "stream", _ if isinstance(body, _STREAM):
                pass
            case "tools", InboxOpened() | InboxClosed() | TodosUpdated():
                pass
            case "tools", ToolStarted() | ToolProgress() | ToolEnded() | ToolsEnded():
                self._tool(body)
            # A turn without calls ends right after the answer, without results.
            case (("tools" | "turn end"), TurnEnded()):
                assert not self._calls, "the turn ended without its results"
                assert body.turn == self._turn, "another turn ended"
                self.position = "between"
            case _:
                raise AssertionError(f"{body.type} cannot come here:{self.seen}")

    def _tool(self, body: ToolStarted | ToolProgress | ToolEnded | ToolsEnded) -> None:
        match body:
            case ToolStarted():
                assert body.call.id in self._calls, "an unknown call started"
                assert body.call.id not in self._running | self._ended, "a call started twice"
                self._running.add(body.call.id)
            case ToolProgress():
                assert body.call_id in self._running, "progress of a call that is not running"
            case ToolEnded():
                assert body.call_id in self._running, "the end of a call that is not running"
                self._running.remove(body.call_id)
                self._ended.add(body.call_id)
            case ToolsEnded():
                assert not self._running, "results before the last call ended"
                assert [r.call_id for r in body.message.results] == list(self._calls), "results out of order"
                self._calls, self.position = {}, "turn end"
            case _:
                assert_never(body)


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
        """The conversation, rebuilt from the events."""
        return replay(self.bodies).messages

    def of(self, kind: type[B]) -> list[B]:
        """Return the events of one kind."""
        return [body for body in self.bodies if isinstance(body, kind)]


@dataclass(frozen=True, slots=True)
class FakeTool:
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
        given = self.function(**arguments)
        output = await given if inspect.isawaitable(given) else given
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
    left = asyncio.all_tasks() - before
    if left:
        raise AssertionError(f"the run left {len(left)} task(s) behind: {left}")
    return recording
