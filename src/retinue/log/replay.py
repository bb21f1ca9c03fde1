"""Rebuild a conversation from its events: a pure function that is right at any cut of the stream.

A process can die between any two events. The result is always a conversation a model accepts: every
tool call of an assistant message is answered exactly once, in call order, and no call that finished is
asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    MessageAdded,
    Rewound,
    RunCreated,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolEnded,
    ToolsEnded,
    TurnEnded,
    Undone,
)
from retinue.core.messages import AssistantMessage, Content, Message, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.usage import Usage, larger
from retinue.log.open_calls import MessageStream, OpenCalls

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
    rebuilding = Rebuilding()
    numbered = [event for event in whole if isinstance(event, Event)]
    rewound = any(isinstance(event.body, Rewound) for event in numbered)
    branch = {event.seq for event in current_branch(numbered)} if rewound else None
    for event in whole:
        if isinstance(event, Event):
            rebuilding.take(event.body, spoken=branch is None or event.seq in branch)
        else:
            rebuilding.take(event)
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


class Rebuilding:
    """A conversation that grows event by event. With `output_kept`, the oldest outputs of tools go when there are
    more characters of them than that: no model reads so much at once, and each would take memory."""

    def __init__(self, output_kept: int | None = None) -> None:
        self.output_kept = output_kept
        self.output = 0
        """Characters of tool outputs in the messages."""
        self.shortened = 0
        """So many of the oldest messages have no long outputs any more."""
        self.messages: list[Message] = []
        self.stream = MessageStream()
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
        self.left = False
        """Whether the newest event is a return to an earlier point."""
        self.undone: list[Undone] = []
        """What was put back since; the model hears of it when it goes on."""

    def take(self, body: Body, *, spoken: bool = True) -> None:
        """Count one event in. It is `spoken` unless a person went back behind it."""
        self.count(body)
        if spoken:
            self.say(body)

    def say(self, body: Body) -> None:
        self.left = isinstance(body, Rewound)
        match body:
            case AssistantEnded():
                self.answer(body)
                return
            case ToolsEnded() if self.stream.pending is None:
                # The conversation holds no answer with these calls.
                return
            case Compacted():
                self.messages = closed(body.messages)
                self.output = sum(map(_output_of, self.messages))
                self.shortened = 0
                self.stream.pending, self.remnant = None, False
            case MessageAdded():
                self.remnant = False
            case Undone():
                self.undone.append(body)
            case _:
                pass
        self.enter(self.stream.take(body))
        if isinstance(body, Rewound):
            self.enter(self.stream.settle())
            self.messages += _told_of_changes(body.changed, _STILL_CHANGED)
        elif isinstance(body, RunResumed):
            self.messages += _told(self.undone)
            self.undone = []

    def count(self, body: Body) -> None:
        match body:
            case RunCreated():
                self.created = body
            case RunStarted():
                self.started = body
            case AssistantEnded():
                self.turn, self.unpaid = body.turn, body.message.usage
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
        self.enter(self.stream.settle())
        if self.remnant:
            self.messages.pop()
        message = entering(body.message)
        self.remnant = bool(message.content) and _failed(body.message)
        if message.content:
            self.enter(self.stream.take(replace(body, message=message)))

    def enter(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.messages.append(message)
            if isinstance(message, ToolMessage):
                self.messages[-2:] = closed(self.messages[-2:])
                self.shorten(self.messages[-1])

    def shorten(self, newest: Message) -> None:
        """Count the newest message, and take out what has become too much."""
        self.output += _output_of(newest)
        while self.output_kept is not None and self.output > self.output_kept and self.shortened < len(self.messages):
            old = self.messages[self.shortened]
            self.messages[self.shortened] = _without_output(old)
            self.output -= _output_of(old)
            self.shortened += 1

    def done(self, partial: str) -> Conversation:
        if self.left:
            # What was being written belongs to the part that was left.
            partial = ""
        pending = self.stream.pending
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


def _output_of(message: Message) -> int:
    if not isinstance(message, ToolMessage):
        return 0
    return sum(_size(part) for result in message.results for part in result.content)


def _size(part: Content) -> int:
    return len(part.text) if isinstance(part, Text) else len(part.data)


def _without_output(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    results = []
    for result in message.results:
        size = sum(map(_size, result.content))
        gone = (Text(f"[Output removed to save space: {size} characters.]"),)
        results.append(result if size <= _SHORT_OUTPUT else replace(result, content=gone))
    return ToolMessage(tuple(results))


_SHORT_OUTPUT = 400
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
