"""Events back to the conversation they were: a pure function, right at any cut of the stream.

A process can die between any two events. The result is always a conversation a model
accepts: every tool call of an assistant message is answered exactly once, in call order, and no
call that finished is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.usage import Usage
from retinue.log.pending import Pending
from retinue.log.rows import larger

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
    rebuilding = _Rebuilding()
    for event in events:
        rebuilding.take(event.body if isinstance(event, Event) else event)
    return rebuilding.done(partial)


class _Rebuilding:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pending: Pending | None = None
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
            case RunResumed():
                self.settle()
                self.messages += _told(self.undone)
                self.undone = []
            case TurnStarted() | RunEnded():
                self.settle()
            case _:
                pass

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
                self.pending = Pending(message)

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


def _told(undone: list[Undone]) -> list[Message]:
    """Tell the model that its files are no longer as it left them."""
    paths = [path for body in undone for path in (*body.restored, *body.removed)]
    if not paths:
        return []
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    names = ", ".join(paths[:_MOST_PATHS]) + more
    return [
        user(f"Your changes to these files were undone: {names}. Read files again before you edit.", "notification")
    ]


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
    pending: Pending | None = None
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
        pending = Pending(message) if isinstance(message, AssistantMessage) and message.tool_calls else None
        result.append(message)
    if pending is not None:
        result.append(pending.settle()[0])
    return result
