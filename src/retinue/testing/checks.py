"""What must hold for every run, whatever its model and tools did. Each raises AssertionError."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, assert_never

from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    InboxClosed,
    InboxOpened,
    LimitReached,
    MessageAdded,
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
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage
from retinue.models.protocol import ModelRequest

_BETWEEN = (RunCreated, RunStarted, RunResumed, MessageAdded, Compacted, Warned, LimitReached)
_STREAM = (TextDelta, ThinkingDelta, Retrying)


def check_grammar(bodies: Iterable[Body]) -> None:
    """The order that `retinue.core.events` promises, down to the last event."""
    grammar = _Grammar()
    for body in bodies:
        grammar.take(body)
    assert grammar.place == "ended", f"the run did not end:{grammar.seen}"


class _Grammar:
    """Where in a run we are: between turns, in the model's stream, at the tools, at the end."""

    def __init__(self) -> None:
        self.place: Literal["between", "stream", "tools", "turn end", "ended"] = "between"
        self.seen = ""
        self._turn: int | None = None
        self._calls: dict[str, ToolCall] = {}
        self._running: set[str] = set()
        self._ended: set[str] = set()

    def take(self, body: Body) -> None:
        self.seen = f"{self.seen[-400:]} {body.type}"
        match self.place, body:
            case "between", TurnStarted():
                assert self._turn is None or body.turn == self._turn + 1, f"turn {body.turn} after {self._turn}"
                self._turn, self.place = body.turn, "stream"
            case "between", RunEnded():
                self.place = "ended"
            case "between", _ if isinstance(body, _BETWEEN):
                pass
            case "stream", AssistantEnded():
                self._calls = {call.id: call for call in body.message.tool_calls}
                assert len(self._calls) == len(body.message.tool_calls), "two calls share an id"
                self._ended, self.place = set(), "tools"
            case "stream", _ if isinstance(body, _STREAM):
                pass
            case "tools", InboxOpened() | InboxClosed() | TodosUpdated():
                pass
            case "tools", ToolStarted() | ToolProgress() | ToolEnded() | ToolsEnded():
                self._tool(body)
            case (("tools" | "turn end"), TurnEnded()):
                assert not self._calls, "the turn ended without its results"
                assert body.turn == self._turn, "another turn ended"
                self.place = "between"
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
                self._calls, self.place = {}, "turn end"
            case _:
                assert_never(body)


def check_history(messages: Sequence[Message]) -> None:
    """Every call has exactly one result, in order, right after it; no message is empty."""
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
    """Consecutive requests of a run extend each other, so that provider caches hit. Requests
    for summaries stand apart: they have no tools and another system prompt. Each compaction
    may break the messages once, never the system prompt or the tools."""
    if not requests:
        return
    first = requests[0]
    asked = [request for request in requests if request.system == first.system]
    broken = 0
    for before, after in pairwise(asked):
        assert after.tools == first.tools, "the tools changed during the run"
        if after.messages[: len(before.messages)] != before.messages:
            broken += 1
    assert broken <= compactions, f"the prefix broke {broken} times with {compactions} compactions"
