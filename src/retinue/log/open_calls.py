"""The messages of a run in the order of its conversation, with a result for every tool call.

For a call that never reported, the result says what is known of it: nothing may ask for it again unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    InboxClosed,
    InboxOpened,
    MessageAdded,
    RunEnded,
    RunResumed,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, ToolResult

ARGUMENT_PREVIEW = 120
_NONE: tuple[Message, ...] = ()
_OF_CALLS = frozenset({ToolStarted, ToolEnded, InboxOpened, InboxClosed})
_SETTLING = frozenset({TurnStarted, RunResumed, RunEnded, Compacted})


class OpenCalls:
    """Collects what is known of the calls of one assistant message, by id. Some servers give two
    calls of a message the same id: results then go to calls of that id in order."""

    def __init__(self, message: AssistantMessage) -> None:
        self.calls = message.tool_calls
        self._started: dict[str, int] = {}
        self._ended: dict[str, list[ToolResult]] = {}
        self._held: dict[str, int] = {}

    def take(self, body: Body) -> None:
        match body:
            case ToolStarted(call):
                self._started[call.id] = self._started.get(call.id, 0) + 1
            case ToolEnded():
                self.end(body.result)
            case InboxOpened() | InboxClosed():
                if body.call_id is not None:
                    change = 1 if isinstance(body, InboxOpened) else -1
                    self._held[body.call_id] = self._held.get(body.call_id, 0) + change
            case _:
                pass

    def end(self, result: ToolResult) -> None:
        self._ended.setdefault(result.call_id, []).append(result)

    @property
    def finished(self) -> dict[str, ToolResult]:
        return {call_id: results[-1] for call_id, results in self._ended.items()}

    def settle(self) -> tuple[ToolMessage, tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        """One result for every call, in call order: what was recorded; for a call that started
        and never reported, that its effect is unknown; for the rest, that they were not run,
        among them those that still waited for a person.
        The second and third value are the calls of those two kinds."""
        ended = {call_id: list(results) for call_id, results in self._ended.items()}
        running = {call_id: count - len(ended.get(call_id, ())) for call_id, count in self._started.items()}
        results: list[ToolResult] = []
        unknown: list[ToolCall] = []
        unrun: list[ToolCall] = []
        for call in self.calls:
            if ended.get(call.id):
                results.append(ended[call.id].pop(0))
            elif self._held.get(call.id, 0) > 0:
                unrun.append(call)
                results.append(_answer(call, unasked_text(call)))
            elif running.get(call.id, 0) > 0:
                running[call.id] -= 1
                unknown.append(call)
                results.append(_answer(call, unknown_text(call)))
            else:
                unrun.append(call)
                results.append(_answer(call, unrun_text(call)))
        return ToolMessage(tuple(results)), tuple(unknown), tuple(unrun)


class MessageStream:
    """Takes the events of one run in order."""

    def __init__(self) -> None:
        self.pending: OpenCalls | None = None
        """The calls of the last answer, while they have no results."""

    def take(self, body: Body) -> Sequence[Message]:
        """Return the messages that an event adds."""
        kind = type(body)
        if kind in _OF_CALLS:
            if self.pending is not None:
                self.pending.take(body)
            return _NONE
        if kind in _SETTLING:
            return self.settle()
        match body:
            case AssistantEnded(_, message):
                settled = self.settle()
                self.pending = OpenCalls(message) if message.tool_calls else None
                return [*settled, message]
            case ToolsEnded(results):
                self.pending = None
                return [results]
            case MessageAdded(words):
                return [*self.settle(), words]
            case _:
                return _NONE

    def settle(self) -> Sequence[Message]:
        """Return results for calls that will never report: the run ended, or goes on without them."""
        if self.pending is None:
            return _NONE
        message, self.pending = self.pending.settle()[0], None
        return [message]


def describe_call(call: ToolCall) -> str:
    """`bash(command='make test')`: a call as one short line."""
    if call.broken is not None:
        return f"{call.name}({_short(call.broken)})"
    return f"{call.name}({', '.join(f'{key}={_short(value)}' for key, value in _items(call.arguments))})"


def unknown_text(call: ToolCall) -> str:
    return (
        f"The effect of this call is unknown: {describe_call(call)} had started when the run was cut off, and "
        "never reported back. It may have done all of its work, a part of it, or nothing. "
        "Assume neither: look at the present state before you go on."
    )


def unrun_text(call: ToolCall) -> str:
    return (
        f"This call was not run: {describe_call(call)} had not begun when the run was cut off. "
        "Make it again if it is still needed."
    )


def unasked_text(call: ToolCall) -> str:
    return (
        f"This call was not run: {describe_call(call)} still waited for approval when the run was cut off. "
        "Make exactly the same call again if it is still needed: an answer given meanwhile applies to it."
    )


def _answer(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text),), is_error=True)


def _items(arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(arguments.items())[:4]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= ARGUMENT_PREVIEW else f"{text[:ARGUMENT_PREVIEW]}…"
