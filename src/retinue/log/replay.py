"""Rebuild the conversation of a run from its events, which may stop anywhere.

A process can die between any two events. The result is always a conversation that a model accepts: every tool call of
an assistant message is answered exactly once, in call order, and no call that finished is asked for again. For a call
that never reported, the result states what is known of it.

From the log, a conversation is rebuilt without reading what it no longer needs. A compaction replaces all messages
before it, and going back leaves a part of the conversation behind: answers and outputs of those events are not read. So
a run takes as much memory as its conversation does, and a conversation no more than a model can be told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from retinue.core.messages import AssistantMessage, Content, Message, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.usage import NOTHING, Usage, larger
from retinue.errors import StateError

if TYPE_CHECKING:
    from retinue.log.query import LogReader


MAX_ARGUMENT_CHARACTERS = 120
MAX_PATHS = 20
MIN_REMOVED_CHARACTERS = 400
_NO_MESSAGES: tuple[Message, ...] = ()
_OF_CALLS = frozenset({ToolStarted, ToolEnded, InboxOpened, InboxClosed})
_SETTLING = frozenset({TurnStarted, RunResumed, RunEnded, Compacted})


class OpenCalls:
    """The calls of one assistant message and their results, by id. Some servers give two calls of a message the same
    id: results then go to calls of that id in order."""

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

    def settle(self) -> tuple[ToolMessage, tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        """Return one result for every call, in call order: the recorded one; for a call that started and never
        reported, that its effect is unknown; for the rest, also those that waited for a person, that they were not run.
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
                results.append(_answer(call, _UNASKED))
            elif running.get(call.id, 0) > 0:
                running[call.id] -= 1
                unknown.append(call)
                results.append(_answer(call, _UNKNOWN))
            else:
                unrun.append(call)
                results.append(_answer(call, _UNRUN))
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
            return _NO_MESSAGES
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
                return _NO_MESSAGES

    def settle(self) -> Sequence[Message]:
        """Return results for calls that will never report: the run ended, or goes on without them."""
        if self.pending is None:
            return _NO_MESSAGES
        message, self.pending = self.pending.settle()[0], None
        return [message]


def describe_call(call: ToolCall) -> str:
    """`bash(command='make test')`: a call as one short line."""
    if call.broken is not None:
        return f"{call.name}({_short(call.broken)})"
    first = list(call.arguments.items())[:4]
    return f"{call.name}({', '.join(f'{name}={_short(value)}' for name, value in first)})"


_UNKNOWN = (
    "The effect of this call is unknown: {} had started when the run was cut off, and "
    "never reported back. It may have done all of its work, a part of it, or nothing. "
    "Assume neither: look at the present state before you go on."
)
_UNRUN = "This call was not run: {} had not begun when the run was cut off. Make it again if it is still needed."
_UNASKED = (
    "This call was not run: {} still waited for approval when the run was cut off. "
    "Make exactly the same call again if it is still needed: an answer given meanwhile applies to it."
)


def _answer(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text.format(describe_call(call))),), is_error=True)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_ARGUMENT_CHARACTERS else f"{text[:MAX_ARGUMENT_CHARACTERS]}…"


class Conversation(Struct, kw_only=True):
    """The conversation of a run. `turn` is the number of the last turn whose answer is complete.

    `unknown` are calls that started and never reported, `unrun` those that never began; both are of the last turn and
    are answered in `messages`. `partial` is text that was shown of an answer that was never completed.
    """

    created: RunCreated | None = None
    started: RunStarted | None = None
    messages: tuple[Message, ...] = ()
    turn: int = 0
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = NOTHING
    unknown: tuple[ToolCall, ...] = ()
    unrun: tuple[ToolCall, ...] = ()
    partial: str = ""
    outcome: Outcome | None = None
    """How the run ended; None while it has not, or once it was resumed."""


def replay(events: Iterable[Event | Body], partial: str = "") -> Conversation:
    """Rebuild the conversation. `events` may stop anywhere; `partial` is what the log holds of
    the answer that was being written (`Reader.partial`)."""
    events = list(events)
    rebuilding = Rebuilding()
    branch = {event.seq for event in current_branch([event for event in events if isinstance(event, Event)])}
    for event in events:
        if isinstance(event, Event):
            rebuilding.take(event.body, spoken=event.seq in branch)
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


class Rebuilding(Conversation, kw_only=True):
    """A conversation that grows event by event. With `output_kept`, the oldest outputs of tools are removed when they
    have more characters together: no model reads so much at once, and each would take memory."""

    output_kept: int | None = None
    output: int = 0
    """Characters of tool outputs in the messages."""
    shortened: int = 0
    """So many of the oldest messages have no long outputs any more."""
    history: list[Message] = []
    stream: MessageStream = field(default_factory=MessageStream)
    unpaid: Usage = NOTHING
    """Spent in a turn whose end was not recorded."""
    remnant: bool = False
    """Whether the last message is what a failed answer left."""
    is_rewound: bool = False
    """Whether the newest event is a return to an earlier point."""
    undone: list[Undone] = []
    """Undone changes of files that the model has not been told of."""

    def take(self, body: Body, *, spoken: bool = True) -> None:
        """Take in the next event. It is `spoken` unless a person went back behind it."""
        self.count(body)
        if spoken:
            self.say(body)

    def say(self, body: Body) -> None:
        self.is_rewound = isinstance(body, Rewound)
        match body:
            case AssistantEnded():
                self.answer(body)
                return
            case ToolsEnded() if self.stream.pending is None:
                # The conversation holds no answer with these calls.
                return
            case Compacted():
                self.history = closed(body.messages)
                self.output = sum(map(_output_of, self.history))
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
            self.history += _told_of_changes(body.changed, _STILL_CHANGED)
        elif isinstance(body, RunResumed):
            self.history += _told(self.undone)
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
                self.usage, self.unpaid = larger(self.usage, body.total, body.usage), NOTHING
            case Compacted():
                self.compactions += 1
            case RunResumed():
                self.outcome = None
            case RunEnded(outcome):
                self.outcome = outcome
                self.usage, self.unpaid = larger(self.usage + self.unpaid, outcome.usage), NOTHING
            case _:
                pass

    def answer(self, body: AssistantEnded) -> None:
        self.enter(self.stream.settle())
        if self.remnant:
            self.history.pop()
        message = entering(body.message)
        self.remnant = bool(message.content) and _failed(body.message)
        if message.content:
            self.enter(self.stream.take(replace(body, message=message)))

    def enter(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.history.append(message)
            if isinstance(message, ToolMessage):
                self.history[-2:] = closed(self.history[-2:])
                self.shorten(self.history[-1])

    def shorten(self, newest: Message) -> None:
        """Count the newest message, and take out what has become too much."""
        self.output += _output_of(newest)
        while self.output_kept is not None and self.output > self.output_kept and self.shortened < len(self.history):
            old = self.history[self.shortened]
            self.history[self.shortened] = _without_output(old)
            self.output -= _output_of(old)
            self.shortened += 1

    def done(self, partial: str) -> Conversation:
        # After a return, the text that was being written belongs to the part that was left.
        self.partial = "" if self.is_rewound else partial
        if self.stream.pending is not None:
            message, self.unknown, self.unrun = self.stream.pending.settle()
            self.history.append(message)
        self.messages = (*self.history, *_told(self.undone))
        self.usage += self.unpaid
        return Conversation(**{name: getattr(self, name) for name in Conversation.__struct_fields__})


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
        results.append(result if size <= MIN_REMOVED_CHARACTERS else replace(result, content=gone))
    return ToolMessage(tuple(results))


_UNDONE = "Your changes to these files were undone: {}. Read files again before you edit."
_STILL_CHANGED = (
    "The user went back to this point of the conversation. These files stay as a later part of it had changed "
    "them: {}. Read files again before you edit."
)


def _told(undone: list[Undone]) -> list[Message]:
    """Tell the model that its files are no longer as it left them."""
    return _told_of_changes([path for body in undone for path in (*body.restored, *body.removed)], _UNDONE)


def _told_of_changes(paths: Sequence[str], text: str) -> list[Message]:
    if not paths:
        return []
    more = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
    return [user(text.format(", ".join(paths[:MAX_PATHS]) + more), "notification")]


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


MAX_OUTPUT_CHARACTERS = 4_000_000
"""Characters of tool outputs in a conversation; the oldest go first. No model reads as many at once."""
_LONG_EVENTS = ("message.added", "assistant.ended", "tool.started", "tool.ended", "tools.ended", "run.compacted")
"""Events that may be long, and of which only the conversation needs more than their number."""

Kinds = Sequence[tuple[int, str]]
"""Number and type of each event of a run."""
Ranges = list[tuple[int, int]]


class _Needed(Struct, frozen=True):
    """Which events of `_LONG_EVENTS` are read: those inside of `ranges`, and `single` ones."""

    ranges: Ranges
    single: list[int]

    def __contains__(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.ranges) or seq in self.single

    def condition(self) -> str:
        spoken = ", ".join(f"'{kind}'" for kind in _LONG_EVENTS)
        parts = [f"type NOT IN ({spoken})", *(f"seq BETWEEN {first} AND {last}" for first, last in self.ranges)]
        if self.single:
            parts.append(f"seq IN ({', '.join(map(str, self.single))})")
        return " OR ".join(parts)


def read_conversation(reader: LogReader, run_id: str) -> Conversation:
    """Return the run as it can be taken up again."""
    kinds = _kinds(reader, run_id)
    if kinds and kinds[-1][1] == "run.pruned":
        raise StateError(
            f"Run {run_id} cannot go on: its events were removed to save space.",
            remedy=f"Start a new run. How it ended and what it used: retinue runs show {run_id}",
        )
    branch = _branch(reader, run_id, kinds)
    needed = _needed(kinds, branch)
    rebuilding = Rebuilding(output_kept=MAX_OUTPUT_CHARACTERS)
    unread = [kind for seq, kind in kinds if kind in _LONG_EVENTS and seq not in needed]
    rebuilding.tool_uses = unread.count("tool.ended")
    rebuilding.compactions = unread.count("run.compacted")
    for event in reader.stream(run_id, condition=needed.condition()):
        rebuilding.take(event.body, spoken=any(first <= event.seq <= last for first, last in branch))
    return rebuilding.done(reader.partial(run_id))


def read_branch(
    reader: LogReader, run_id: str, types: Collection[str] = (), most: int | None = None
) -> Iterator[Event]:
    """Yield the events that the conversation consists of now, newest first: those of `types`, or all; at most `most`.
    Only as many are read as are taken, and none of `tools.ended`, which only repeats the ends of the calls."""
    ranges = _branch(reader, run_id, _kinds(reader, run_id))
    within = " OR ".join(f"seq BETWEEN {first} AND {last}" for first, last in ranges)
    condition = f"type!='tools.ended' AND ({within})"
    for _, event in reader.ordered(run_id, types, limit=most, condition=condition, newest_first=True):
        yield event


def read_last_turn(reader: LogReader, run_id: str) -> Conversation:
    """Return how the run was cut off, from its last answer on: `unknown`, `unrun` and `partial` are those of the
    whole conversation."""
    last = reader.select(
        "SELECT seq FROM events WHERE run_id=? AND type='assistant.ended' ORDER BY seq DESC LIMIT 1", (run_id,)
    )
    rebuilding = Rebuilding()
    for event in reader.stream(run_id, after=int(last[0][0]) - 1 if last else 0):
        rebuilding.take(event.body)
    return rebuilding.done(reader.partial(run_id))


def _kinds(reader: LogReader, run_id: str) -> Kinds:
    return reader.select("SELECT seq, type FROM events WHERE run_id=? ORDER BY seq", (run_id,))


def _branch(reader: LogReader, run_id: str, kinds: Kinds) -> Ranges:
    """Return the ranges of events that the conversation consists of now, in order."""
    returns = {}
    if any(kind == "run.rewound" for _, kind in kinds):
        for event in reader.stream(run_id, types=("run.rewound",)):
            if isinstance(event.body, Rewound):
                returns[event.seq] = event.body.to
    return branch_ranges(returns, kinds[-1][0] if kinds else 0)


def branch_ranges(returns: Mapping[int, int], last: int) -> Ranges:
    """Return the ranges of events up to `last` that count, in order. `returns` are the numbers of the returns to an
    earlier event, each with the number of that event."""
    ranges: Ranges = []
    for seq in sorted(returns, reverse=True):
        if seq <= last:
            ranges.append((seq, last))
            last = returns[seq]
    ranges.append((1, last))
    return ranges[::-1]


def _needed(kinds: Kinds, branch: Ranges) -> _Needed:
    """Return what is read of the events that the conversation is made of, and of answers that no turn has counted."""
    start = 1
    for seq, kind in kinds:
        if kind == "run.compacted" and any(first <= seq <= last for first, last in branch):
            start = seq
    ranges = [(max(first, start), last) for first, last in branch if last >= start]
    single: list[int] = []
    answer = 0
    for seq, kind in kinds:
        if kind == "turn.ended":
            answer = 0
        elif kind in ("assistant.ended", "run.ended"):
            if answer:
                single.append(answer)
            answer = seq if kind == "assistant.ended" else 0
    newest = [seq for seq, kind in kinds if kind == "assistant.ended"][-1:]
    return _Needed(ranges, sorted({*single, *newest}))
