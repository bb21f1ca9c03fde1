"""Rebuild a conversation from its events: a pure function that is right at any cut of the stream.

A process can die between any two events. The result is always a conversation a model accepts: every
tool call of an assistant message is answered exactly once, in call order, and no call that finished is
asked for again. `OpenCalls` answers the calls of a turn that never ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    MessageAdded,
    Rewound,
    RunCreated,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Undone,
)
from retinue.core.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.usage import Usage
from retinue.log.rows import larger

ARGUMENT_PREVIEW = 120


class OpenCalls:
    """Collects what is known of the calls of one assistant message, by id. Some servers give two
    calls of a message the same id: results then go to calls of that id in order."""

    def __init__(self, message: AssistantMessage) -> None:
        self.calls = message.tool_calls
        self._started: dict[str, int] = {}
        self._ended: dict[str, list[ToolResult]] = {}
        self._held: dict[str, int] = {}

    def take(self, body: ToolStarted | ToolEnded | InboxOpened | InboxClosed) -> None:
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
                assert_never(body)

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


_MOST_PATHS = 20


class Conversation(Struct, frozen=True, kw_only=True):
    """A run as its events tell it. `turn` is the number of the last turn whose answer is whole.

    `unknown` are calls that started and never reported, `unrun` those that never began; both
    are of the last turn and are answered in `messages`. `finished` are the results that turn
    had recorded. `partial` is text that was shown of an answer that never became whole.
    """

    created: RunCreated | None = None
    started: RunStarted | None = None
    messages: tuple[Message, ...] = ()
    turn: int = 0
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = field(default_factory=Usage)
    finished: Mapping[str, ToolResult] = field(default_factory=dict)
    unknown: tuple[ToolCall, ...] = ()
    unrun: tuple[ToolCall, ...] = ()
    partial: str = ""
    outcome: Outcome | None = None
    """How the run ended; None while it has not, or once it was resumed."""


def replay(events: Iterable[Event | Body], partial: str = "") -> Conversation:
    """Rebuild the conversation. `events` may stop anywhere; `partial` is what the log holds of
    the answer that was being written (`Reader.partial`)."""
    whole = list(events)
    rebuilding = _Rebuilding()
    for event in whole:
        rebuilding.take(event.body if isinstance(event, Event) else event)
    branch = [event for event in whole if isinstance(event, Event)]
    if rebuilding.rewound and branch:
        branch = current_branch(branch)
        rebuilding.say_only(branch)
        if isinstance(branch[-1].body, Rewound):
            # What was being written belongs to the part that was left.
            partial = ""
    return rebuilding.done(partial)


def current_branch(events: Sequence[Event]) -> list[Event]:
    """Return the events that the conversation consists of now: without those that a person went back behind."""
    kept: list[Event] = []
    newest: int | None = None
    for event in reversed(events):
        if newest is not None and event.seq > newest:
            continue
        kept.append(event)
        newest = event.body.to if isinstance(event.body, Rewound) else None
    kept.reverse()
    return kept


class _Rebuilding:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pending: OpenCalls | None = None
        self.created: RunCreated | None = None
        self.started: RunStarted | None = None
        self.outcome: Outcome | None = None
        self.turn = 0
        self.tool_uses = 0
        self.compactions = 0
        self.usage = Usage()
        self.unpaid = Usage()
        """Spent in a turn whose end was not recorded."""
        self.remnant = False
        """Whether the last message is what a failed answer left."""
        self.rewound = False
        self.undone: list[Undone] = []
        """What was put back since; the model hears of it when it goes on."""

    def take(self, body: Body) -> None:
        self.count(body)
        match body:
            case MessageAdded():
                self.settle()
                self.messages.append(body.message)
                self.remnant = False
            case AssistantEnded():
                self.answer(body)
            case ToolStarted() | ToolEnded() | InboxOpened() | InboxClosed() if self.pending is not None:
                self.pending.take(body)
            case ToolsEnded():
                self.results(body.message)
            case Compacted():
                self.messages = closed(body.messages)
                self.pending, self.remnant = None, False
            case Undone():
                self.undone.append(body)
            case Rewound():
                self.rewound = True
                self.settle()
                self.messages += _told_of_changes(body.changed, _STILL_CHANGED)
            case RunResumed():
                self.settle()
                self.messages += _told(self.undone)
                self.undone = []
            case TurnStarted() | RunEnded():
                self.settle()
            case _:
                pass

    def say_only(self, branch: list[Event]) -> None:
        """Keep what the whole run has used, and only the messages of this branch of it."""
        other = _Rebuilding()
        for event in branch:
            other.take(event.body)
        self.messages, self.pending = other.messages, other.pending
        self.remnant, self.undone = other.remnant, other.undone

    def count(self, body: Body) -> None:
        match body:
            case RunCreated():
                self.created = body
            case RunStarted():
                self.started = body
            case ToolEnded():
                self.tool_uses += 1
            case TurnEnded():
                self.usage, self.unpaid = larger(self.usage, body.total, body.usage), Usage()
            case Compacted():
                self.compactions += 1
            case RunResumed():
                self.outcome = None
            case RunEnded(outcome):
                self.outcome = outcome
                self.usage, self.unpaid = larger(self.usage + self.unpaid, outcome.usage), Usage()
            case _:
                pass

    def answer(self, body: AssistantEnded) -> None:
        self.settle()
        self.turn = body.turn
        self.unpaid = body.message.usage
        if self.remnant:
            self.messages.pop()
        message = entering(body.message)
        self.remnant = bool(message.content) and _failed(body.message)
        if message.content:
            self.messages.append(message)
            if message.tool_calls:
                self.pending = OpenCalls(message)

    def results(self, message: ToolMessage) -> None:
        if self.pending is None:
            return
        self.pending = None
        self.messages.append(message)
        self.messages[-2:] = closed(self.messages[-2:])

    def settle(self) -> None:
        if self.pending is not None:
            self.messages.append(self.pending.settle()[0])
            self.pending = None

    def done(self, partial: str) -> Conversation:
        pending = self.pending
        unknown: tuple[ToolCall, ...] = ()
        unrun: tuple[ToolCall, ...] = ()
        finished: Mapping[str, ToolResult] = {}
        messages = list(self.messages)
        if pending is not None:
            message, unknown, unrun = pending.settle()
            finished = pending.finished
            messages.append(message)
        messages += _told(self.undone)
        return Conversation(
            created=self.created,
            started=self.started,
            messages=tuple(messages),
            turn=self.turn,
            tool_uses=self.tool_uses,
            compactions=self.compactions,
            usage=self.usage + self.unpaid,
            finished=finished,
            unknown=unknown,
            unrun=unrun,
            partial=partial,
            outcome=self.outcome,
        )


_UNDONE = "Your changes to these files were undone: {}. Read files again before you edit."
_STILL_CHANGED = (
    "The user went back to this point of the conversation. These files stay as a later part of it had changed "
    "them: {}. Read files again before you edit."
)


def _told(undone: list[Undone]) -> list[Message]:
    """Tell the model that its files are no longer as it left them."""
    paths: list[str] = []
    for body in undone:
        paths += [*body.restored, *body.removed]
    return _told_of_changes(paths, _UNDONE)


def _told_of_changes(paths: Sequence[str], text: str) -> list[Message]:
    if not paths:
        return []
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return [user(text.format(", ".join(paths[:_MOST_PATHS]) + more), "notification")]


def entering(message: AssistantMessage) -> AssistantMessage:
    """What of an answer enters the conversation: all of it, except the calls of one that failed.
    They were not run. An answer without content does not enter at all."""
    if not _failed(message) or not message.tool_calls:
        return message
    return replace(message, content=tuple(part for part in message.content if not isinstance(part, ToolCall)))


def _failed(message: AssistantMessage) -> bool:
    return message.failure is not None or message.stop in ("error", "aborted", "refusal")


def closed(messages: Iterable[Message]) -> list[Message]:
    """`messages` with every tool call answered once, in order, and no answer without its call."""
    result: list[Message] = []
    pending: OpenCalls | None = None
    for message in messages:
        if isinstance(message, ToolMessage):
            if pending is not None:
                for answer in message.results:
                    pending.end(answer)
                exact = [answer.call_id for answer in message.results] == [call.id for call in pending.calls]
                result.append(message if exact else pending.settle()[0])
                pending = None
            continue
        if pending is not None:
            result.append(pending.settle()[0])
        pending = OpenCalls(message) if isinstance(message, AssistantMessage) and message.tool_calls else None
        result.append(message)
    if pending is not None:
        result.append(pending.settle()[0])
    return result
