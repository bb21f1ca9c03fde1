"""Rebuilding the conversation of a run from its events, which may stop anywhere.

A process can die between any two events. The result is always a conversation that a model accepts: every tool call of
an assistant message has exactly one result, in call order, and the model need not repeat a finished call. For a call
without a recorded end, the result states what is known about it.

Unneeded events are not read from the log. A compaction replaces all messages before it, and a return to an earlier
point drops the events after that point: their answers and outputs are not read. So a run needs as much memory as its
conversation, which is limited to what a model can read.
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
MAX_NAMED_PATHS = 20
MIN_REMOVED_CHARACTERS = 400
_NO_MESSAGES: tuple[Message, ...] = ()
_CALL_EVENTS = frozenset({ToolStarted, ToolEnded, InboxOpened, InboxClosed})
_SETTLING_EVENTS = frozenset({TurnStarted, RunResumed, RunEnded, Compacted})


class OpenCalls:
    """The calls of one assistant message and their results, by id. Some servers give two calls of a message the same
    id: results then go to calls of that id in order."""

    def __init__(self, message: AssistantMessage) -> None:
        self.calls = message.tool_calls
        self._started: dict[str, int] = {}
        self._ended: dict[str, list[ToolResult]] = {}
        self._asking: dict[str, int] = {}

    def take(self, body: Body) -> None:
        match body:
            case ToolStarted(call):
                self._started[call.id] = self._started.get(call.id, 0) + 1
            case ToolEnded():
                self.end(body.result)
            case InboxOpened() | InboxClosed():
                if body.call_id is not None:
                    change = 1 if isinstance(body, InboxOpened) else -1
                    self._asking[body.call_id] = self._asking.get(body.call_id, 0) + change
            case _:
                pass

    def end(self, result: ToolResult) -> None:
        self._ended.setdefault(result.call_id, []).append(result)

    def settle(self) -> tuple[ToolMessage, tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        """Return one result for every call, in call order: the recorded result; for a call that started and has no
        recorded end, that its effect is unknown; for all other calls, that they were not run. The second and the third
        value are the calls of the last two kinds."""
        ended = {call_id: list(results) for call_id, results in self._ended.items()}
        running = {call_id: count - len(ended.get(call_id, ())) for call_id, count in self._started.items()}
        results: list[ToolResult] = []
        unknown: list[ToolCall] = []
        unrun: list[ToolCall] = []
        for call in self.calls:
            if ended.get(call.id):
                results.append(ended[call.id].pop(0))
            elif self._asking.get(call.id, 0) > 0:
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
    """Turns the events of one run into messages, in order."""

    def __init__(self) -> None:
        self.pending: OpenCalls | None = None
        """The calls of the last answer while they have no results."""

    def take(self, body: Body) -> Sequence[Message]:
        """Return the messages that an event adds."""
        kind = type(body)
        if kind in _CALL_EVENTS:
            if self.pending is not None:
                self.pending.take(body)
            return _NO_MESSAGES
        if kind in _SETTLING_EVENTS:
            return self.settle()
        match body:
            case AssistantEnded(_, message):
                settled = self.settle()
                self.pending = OpenCalls(message) if message.tool_calls else None
                return [*settled, message]
            case ToolsEnded(results):
                self.pending = None
                return [results]
            case MessageAdded(message):
                return [*self.settle(), message]
            case _:
                return _NO_MESSAGES

    def settle(self) -> Sequence[Message]:
        """Return results for calls without a recorded end, because the run has ended or continues without them."""
        if self.pending is None:
            return _NO_MESSAGES
        message, self.pending = self.pending.settle()[0], None
        return [message]


def describe_call(call: ToolCall) -> str:
    """Return a call as one short line, such as `bash(command='make test')`."""
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
    """The conversation of a run. `turn` is the number of the last turn with a complete answer.

    `unknown` are calls that started and have no recorded end, `unrun` calls that never began. Both belong to the last
    turn and have results in `messages`. `partial` is the streamed text of an unfinished answer.
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
    """The outcome of the run; None if it has not ended, or was resumed since."""


def replay(events: Iterable[Event | Body], partial: str = "") -> Conversation:
    """Rebuild the conversation from events, which may stop anywhere. `partial` is the streamed text of an unfinished
    answer (`LogReader.partial`)."""
    events = list(events)
    rebuilding = Rebuilding()
    branch = {event.seq for event in current_branch([event for event in events if isinstance(event, Event)])}
    for event in events:
        if isinstance(event, Event):
            rebuilding.take(event.body, on_branch=event.seq in branch)
        else:
            rebuilding.take(event)
    return rebuilding.done(partial)


def current_branch(events: Sequence[Event]) -> list[Event]:
    """Return the events of the present conversation, without those that a person dropped by returning to an earlier
    point."""
    branch: list[Event] = []
    newest: int | None = None
    for event in reversed(events):
        if newest is not None and event.seq > newest:
            continue
        branch.append(event)
        newest = event.body.to if isinstance(event.body, Rewound) else None
    branch.reverse()
    return branch


class Rebuilding(Conversation, kw_only=True):
    """A conversation that grows event by event. If its tool outputs have more than `max_output` characters, the oldest
    ones are removed: no model can read so much at once, and they would use memory."""

    max_output: int | None = None
    output: int = 0
    """The number of characters of tool outputs in the messages."""
    shortened: int = 0
    """The number of oldest messages whose long outputs were removed."""
    history: list[Message] = []
    stream: MessageStream = field(default_factory=MessageStream)
    unpaid: Usage = NOTHING
    """The usage of a turn whose end was not recorded."""
    ends_with_failed_answer: bool = False
    """Whether the last message is the text of a failed answer."""
    is_rewound: bool = False
    """Whether the newest event is a return to an earlier point."""
    undone: list[Undone] = []
    """Undone changes of files that the model has not been told about."""

    def take(self, body: Body, *, on_branch: bool = True) -> None:
        """Add the next event. Unless it is `on_branch`, a person has dropped it by returning to an earlier point."""
        self.count(body)
        if on_branch:
            self.add(body)

    def add(self, body: Body) -> None:
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
                self.stream.pending, self.ends_with_failed_answer = None, False
            case MessageAdded():
                self.ends_with_failed_answer = False
            case Undone():
                self.undone.append(body)
            case _:
                pass
        self.append(self.stream.take(body))
        if isinstance(body, Rewound):
            self.append(self.stream.settle())
            self.history += _notify_changes(body.changed, _STILL_CHANGED)
        elif isinstance(body, RunResumed):
            self.history += _notify_undone(self.undone)
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
        self.append(self.stream.settle())
        if self.ends_with_failed_answer:
            self.history.pop()
        message = without_failed_calls(body.message)
        self.ends_with_failed_answer = bool(message.content) and _failed(body.message)
        if message.content:
            self.append(self.stream.take(replace(body, message=message)))

    def append(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.history.append(message)
            if isinstance(message, ToolMessage):
                self.history[-2:] = closed(self.history[-2:])
                self.shorten(self.history[-1])

    def shorten(self, newest: Message) -> None:
        """Count the output of the newest message, and remove the oldest outputs above the limit."""
        self.output += _output_of(newest)
        while self.max_output is not None and self.output > self.max_output and self.shortened < len(self.history):
            old = self.history[self.shortened]
            self.history[self.shortened] = _without_output(old)
            self.output -= _output_of(old)
            self.shortened += 1

    def done(self, partial: str) -> Conversation:
        # After a return to an earlier point, the streamed text belongs to the dropped part.
        self.partial = "" if self.is_rewound else partial
        if self.stream.pending is not None:
            message, self.unknown, self.unrun = self.stream.pending.settle()
            self.history.append(message)
        self.messages = (*self.history, *_notify_undone(self.undone))
        self.usage += self.unpaid
        return Conversation(**{name: getattr(self, name) for name in Conversation.__struct_fields__})


def _output_of(message: Message) -> int:
    if not isinstance(message, ToolMessage):
        return 0
    return sum(_size(content) for result in message.results for content in result.content)


def _size(content: Content) -> int:
    return len(content.text) if isinstance(content, Text) else len(content.data)


def _without_output(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    results = []
    for result in message.results:
        size = sum(map(_size, result.content))
        placeholder = (Text(f"[Output removed to save space: {size} characters.]"),)
        results.append(result if size <= MIN_REMOVED_CHARACTERS else replace(result, content=placeholder))
    return ToolMessage(tuple(results))


_UNDONE = "Your changes to these files were undone: {}. Read files again before you edit."
_STILL_CHANGED = (
    "The user went back to this point of the conversation. These files stay as a later part of it had changed "
    "them: {}. Read files again before you edit."
)


def _notify_undone(undone: list[Undone]) -> list[Message]:
    """Return the notification that changes of files were undone, if any."""
    return _notify_changes([path for body in undone for path in (*body.restored, *body.removed)], _UNDONE)


def _notify_changes(paths: Sequence[str], text: str) -> list[Message]:
    if not paths:
        return []
    unnamed = f" and {len(paths) - MAX_NAMED_PATHS} more" if len(paths) > MAX_NAMED_PATHS else ""
    return [user(text.format(", ".join(paths[:MAX_NAMED_PATHS]) + unnamed), "notification")]


def without_failed_calls(message: AssistantMessage) -> AssistantMessage:
    """Return an answer as the conversation contains it: without calls if the answer failed, because they were not
    run."""
    if not _failed(message) or not message.tool_calls:
        return message
    return replace(message, content=tuple(content for content in message.content if not isinstance(content, ToolCall)))


def _failed(message: AssistantMessage) -> bool:
    return message.failure is not None or message.stop in ("error", "aborted", "refusal")


def closed(messages: Iterable[Message]) -> list[Message]:
    """Return `messages` with exactly one result for every tool call, in order, and no result without its call."""
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
"""The limit of tool outputs in a conversation; the oldest are removed first. No model can read so much at once."""
_LONG_EVENTS = ("message.added", "assistant.ended", "tool.started", "tool.ended", "tools.ended", "run.compacted")
"""Events that may be long. Outside of the conversation only their number is needed."""

EventTypes = Sequence[tuple[int, str]]
"""Number and type of each event of a run."""
Ranges = list[tuple[int, int]]


class _NeededEvents(Struct, frozen=True):
    """The events of `_LONG_EVENTS` that are read: those inside of `ranges`, and `single` ones."""

    ranges: Ranges
    single: list[int]

    def __contains__(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.ranges) or seq in self.single

    def condition(self) -> str:
        """Return the SQL condition for these events and all short ones."""
        long_types = ", ".join(f"'{kind}'" for kind in _LONG_EVENTS)
        conditions = [f"type NOT IN ({long_types})"]
        conditions += [f"seq BETWEEN {first} AND {last}" for first, last in self.ranges]
        if self.single:
            conditions.append(f"seq IN ({', '.join(map(str, self.single))})")
        return " OR ".join(conditions)


def read_conversation(reader: LogReader, run_id: str) -> Conversation:
    """Return the conversation of a run, with which it can be resumed. Raise StateError for a pruned run."""
    types = _read_types(reader, run_id)
    if types and types[-1][1] == "run.pruned":
        raise StateError(
            f"Run {run_id} cannot be resumed: its events were removed to save space.",
            remedy=f"Start a new run. Its outcome and usage: retinue runs show {run_id}",
        )
    branch = _read_branch_ranges(reader, run_id, types)
    needed = _find_needed(types, branch)
    rebuilding = Rebuilding(max_output=MAX_OUTPUT_CHARACTERS)
    unread = [kind for seq, kind in types if kind in _LONG_EVENTS and seq not in needed]
    rebuilding.tool_uses = unread.count("tool.ended")
    rebuilding.compactions = unread.count("run.compacted")
    for event in reader.stream(run_id, condition=needed.condition()):
        rebuilding.take(event.body, on_branch=any(first <= event.seq <= last for first, last in branch))
    return rebuilding.done(reader.partial(run_id))


def read_branch(
    reader: LogReader, run_id: str, types: Collection[str] = (), limit: int | None = None
) -> Iterator[Event]:
    """Yield the events of the present conversation, newest first: those of `types`, or all; at most `limit`. Events are
    read only as they are consumed. `tools.ended` is left out, because it repeats the ends of the calls."""
    ranges = _read_branch_ranges(reader, run_id, _read_types(reader, run_id))
    within = " OR ".join(f"seq BETWEEN {first} AND {last}" for first, last in ranges)
    condition = f"type!='tools.ended' AND ({within})"
    for _, event in reader.ordered(run_id, types, limit=limit, condition=condition, newest_first=True):
        yield event


def read_last_turn(reader: LogReader, run_id: str) -> Conversation:
    """Return the conversation from the last answer on. Its `unknown`, `unrun` and `partial` are those of the complete
    conversation."""
    last = reader.select(
        "SELECT seq FROM events WHERE run_id=? AND type='assistant.ended' ORDER BY seq DESC LIMIT 1", (run_id,)
    )
    rebuilding = Rebuilding()
    for event in reader.stream(run_id, after=int(last[0][0]) - 1 if last else 0):
        rebuilding.take(event.body)
    return rebuilding.done(reader.partial(run_id))


def _read_types(reader: LogReader, run_id: str) -> EventTypes:
    return reader.select("SELECT seq, type FROM events WHERE run_id=? ORDER BY seq", (run_id,))


def _read_branch_ranges(reader: LogReader, run_id: str, types: EventTypes) -> Ranges:
    """Return the ranges of events of the present conversation, in order."""
    returns = {}
    if any(kind == "run.rewound" for _, kind in types):
        for event in reader.stream(run_id, types=("run.rewound",)):
            if isinstance(event.body, Rewound):
                returns[event.seq] = event.body.to
    return branch_ranges(returns, types[-1][0] if types else 0)


def branch_ranges(returns: Mapping[int, int], last: int) -> Ranges:
    """Return the ranges of events up to `last` that belong to the conversation, in order. `returns` has the number of
    each return to an earlier point, with the number of the event returned to."""
    ranges: Ranges = []
    for seq in sorted(returns, reverse=True):
        if seq <= last:
            ranges.append((seq, last))
            last = returns[seq]
    ranges.append((1, last))
    return ranges[::-1]


def _find_needed(types: EventTypes, branch: Ranges) -> _NeededEvents:
    """Return the long events of the present conversation, and answers whose usage no turn has counted."""
    start = 1
    for seq, kind in types:
        if kind == "run.compacted" and any(first <= seq <= last for first, last in branch):
            start = seq
    ranges = [(max(first, start), last) for first, last in branch if last >= start]
    single: list[int] = []
    answer = 0
    for seq, kind in types:
        if kind == "turn.ended":
            answer = 0
        elif kind in ("assistant.ended", "run.ended"):
            if answer:
                single.append(answer)
            answer = seq if kind == "assistant.ended" else 0
    newest = [seq for seq, kind in types if kind == "assistant.ended"][-1:]
    return _NeededEvents(ranges, sorted({*single, *newest}))
