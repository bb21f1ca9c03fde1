"""Live documents for a page: the runs of a project, the story of one run, and a tree at an earlier moment.

Every document is complete. A client replaces its copy of a run or entry and never interprets events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from retinue.app.approvals import APPROVAL_CHOICES, ApprovalChoice
from retinue.app.call_text import subject
from retinue.app.feed import Feed
from retinue.app.frame_story import FrameStories
from retinue.app.stream import FeedFrame
from retinue.app.text import ASKING_MARK, CALL_MARKS, STATUS_MARKS, Mark, Tone, plural
from retinue.core.delegation import Status
from retinue.core.encode import decode, dump
from retinue.core.events import Event, RunCreated, TurnEnded
from retinue.core.format import UNIT, format_duration
from retinue.core.messages import Text, ToolCall, ToolResult
from retinue.core.outcome import Outcome
from retinue.core.run_state import ActiveRun, RunState
from retinue.core.story import Entry, Story, StoryStep, Topic
from retinue.errors import UsageError
from retinue.log.follow import run_events_after, run_events_before
from retinue.log.overview import describe_activity
from retinue.log.query import LogReader

MAX_MOMENTS = 20_000
_ORIGIN_TITLES = {"task": "Task", "steer": "Said to it", "follow-up": "Said to it", "wrap-up": "Asked to wrap up"}
_FOLDED_ORIGINS = frozenset({"notification", "context", "summary"})
_TOPIC_TONES: Mapping[Topic | None, Tone] = {
    "failed": "error",
    "limit": "warning",
    "retry": "warning",
    "resumed": "accent",
}
_INBOX_CHANGES = ("inbox.waiting", "run.interrupted", "run.resumed")
"""The events after which other items wait, or whose items have or lose a note about an interrupted run."""
_TODO_SIGNS = {"completed": "☑", "in_progress": "▶", "pending": "☐"}


class Vocabulary(Struct, frozen=True):
    """The words and signs of run states, the answers to an approval, and the unit of usage, as every front end shows
    them."""

    states: Mapping[Status, Mark]
    choices: Mapping[str, ApprovalChoice]
    unit: str


def list_vocabulary() -> Vocabulary:
    """Return the words with which a page shows runs as the other front ends do."""
    return Vocabulary(STATUS_MARKS, APPROVAL_CHOICES, UNIT)


class EntryView(Struct, frozen=True, omit_defaults=True):
    """One entry of a story. `open` means that it is still being written. `line` is the subject of a call. `detail` has
    a denial, a failure or notes, and is shown below."""

    id: int
    kind: str
    seq: int
    at: float
    text: str = ""
    title: str = ""
    source: str = ""
    """The front end that started the run."""
    mark: Mark | None = None
    tone: Tone | None = None
    folded: bool = False
    open: bool = False
    call: ToolCall | None = None
    line: str = ""
    asks: bool = False
    approval: str = ""
    result: str | None = None
    exit_code: int = 0
    duration_ms: int = 0
    detail: tuple[str, ...] = ()


class StoryChange(Struct, omit_defaults=True):
    """New or changed entries, text appended to entries, and removed entries. The first change after a connection has
    all entries; `earlier` means that the run has events before them."""

    entries: list[EntryView] = field(default_factory=list)
    added: dict[int, str] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    context: int = 0
    """Tokens of the conversation at its last turn, if they changed."""
    first: bool = False
    earlier: bool = False


class ProjectChange(Struct, frozen=True, omit_defaults=True):
    """Runs in their current state. `inbox` means that the waiting items changed. `closed` has items that no longer
    wait, by id, each with the answer and who gave it."""

    runs: list[RunState]
    inbox: bool = False
    closed: Mapping[str, str] = field(default_factory=dict)


class MomentView(Struct, frozen=True):
    """A tree after event number `place` of `count`: its runs, and the story of one of them, whose last event is `seq`.
    `type` and `run_id` describe the event. `cut` means that later events were not counted."""

    place: int
    count: int
    cut: bool
    type: str
    run_id: str
    began: float
    at: float
    runs: list[RunState]
    entries: list[EntryView]
    seq: int


class _StoryViews:
    """Collects the changes that events make to the story of one run."""

    def __init__(self) -> None:
        self._ids: dict[Entry, int] = {}
        self._has_task = False
        self._changed: dict[int, tuple[Event, StoryStep]] = {}
        self._added: dict[int, str] = {}
        self._removed: list[int] = []
        self._context = 0

    def take(self, event: Event, steps: Iterable[StoryStep]) -> None:
        if isinstance(event.body, TurnEnded):
            self._context = event.body.context_tokens
        for step in steps:
            entry = step.entry
            number = self._ids.setdefault(entry, len(self._ids) + 1)
            self._has_task = self._has_task or entry.kind == "task"
            repeats_task = entry.message is not None and entry.message.origin == "task" and self._has_task
            # Questions about a call are shown with the call.
            if repeats_task or entry.topic in ("asked", "answered"):
                continue
            if step.change == "void":
                self._changed.pop(number, None)
                self._added.pop(number, None)
                self._removed.append(number)
            elif step.change != "grew":
                self._added.pop(number, None)
                self._changed[number] = (event, step)
            elif number not in self._changed and entry.call is None:
                self._added[number] = self._added.get(number, "") + step.piece

    def flush(self) -> StoryChange:
        """Return the changes since the last call."""
        entries = [_entry_view(number, event, step) for number, (event, step) in self._changed.items()]
        change = StoryChange(entries, self._added, self._removed, self._context)
        self._changed, self._added, self._removed, self._context = {}, {}, [], 0
        return change


def _entry_view(number: int, event: Event, step: StoryStep) -> EntryView:
    entry = step.entry
    common: dict[str, Any] = {"id": number, "kind": entry.kind, "seq": entry.seq, "at": entry.at}
    if entry.call is not None:
        return _call_view(common, entry, entry.call)
    if entry.outcome is not None:
        return _end_view(common, entry.outcome)
    if entry.kind == "task":
        source = event.body.options.asked.get("by", "") if isinstance(event.body, RunCreated) else ""
        return EntryView(**common, text=entry.text, title=_ORIGIN_TITLES["task"], source=source)
    if entry.message is not None:
        origin = entry.message.origin
        title = _ORIGIN_TITLES.get(origin, origin.capitalize())
        return EntryView(**common, text=entry.text, title=title, folded=origin in _FOLDED_ORIGINS)
    if entry.kind == "todos":
        lines = [f"{_TODO_SIGNS[todo.status]} {todo.content}" for todo in entry.todos]
        return EntryView(**common, text="\n".join(lines))
    if entry.kind == "note":
        detail = entry.detail if entry.topic in ("failed", "resumed") else ""
        return EntryView(**common, text=f"{entry.text} {detail}".strip(), tone=_TOPIC_TONES.get(entry.topic))
    return EntryView(**common, text=entry.text, open=step.change == "added")


def _call_view(common: Mapping[str, Any], entry: Entry, call: ToolCall) -> EntryView:
    denied = entry.effect.denied
    return EntryView(
        **common,
        mark=ASKING_MARK if entry.asks else CALL_MARKS[entry.state],
        call=call,
        line=subject(call),
        asks=bool(entry.asks),
        approval=entry.approval,
        result=_result_text(entry.result) if entry.result is not None else None,
        exit_code=entry.effect.exit_code or 0,
        duration_ms=entry.duration_ms,
        detail=(denied,) if denied else (),
    )


def _result_text(result: ToolResult) -> str:
    return "\n".join(
        block.text if isinstance(block, Text) else f"[{block.__struct_config__.tag}]" for block in result.content
    )


def _end_view(common: Mapping[str, Any], outcome: Outcome) -> EntryView:
    facts = [plural(outcome.turns, "turn"), plural(outcome.tool_uses, "tool use"), format_duration(outcome.duration_ms)]
    notes = list(outcome.notes)
    if outcome.failure is not None:
        notes.insert(0, f"{outcome.failure.message} {outcome.failure.remedy}".strip())
    return EntryView(**common, text=" · ".join(facts), mark=STATUS_MARKS[outcome.ended], detail=tuple(notes))


async def follow_story(feed: Feed, row: RunState, limit: int) -> AsyncIterator[list[FeedFrame]]:
    """Yield the story of a run, starting with its newest `limit` events, and then every change, without end."""
    newest = await feed.read(run_events_before, row.id, None, limit=limit)
    start = newest[0] if newest else None
    earlier = start is not None and start.seq > 1
    stories, views, first = FrameStories(), _StoryViews(), True
    async for frames in feed.events(after=start.number - 1 if start is not None else 0, run_id=row.id):
        for frame in frames:
            change = stories.take(frame)
            if change is not None:
                views.take(*change)
        document = views.flush()
        document.first, document.earlier, first = first, first and earlier, False
        yield [FeedFrame(None, "story", row.id, row.parent_id, dump(document))]


async def follow_project(feed: Feed, after: int | None) -> AsyncIterator[list[FeedFrame]]:
    """Yield the runs of a project whenever they change after event `after`, without end."""
    writing: dict[str, str] = {}
    async for frames in feed.events(after=after):
        number: int | None = None
        changed: dict[str, str] = {}
        closed: dict[str, str] = {}
        for frame in frames:
            number = frame.number or number
            if frame.piece is None:
                writing.pop(frame.run_id, None)
            elif writing.get(frame.run_id) == frame.piece.kind:
                continue
            else:
                writing[frame.run_id] = frame.piece.kind
            if frame.run_id:
                changed[frame.run_id] = frame.type
            if frame.type == "inbox.closed":
                for step in Story().take(decode(frame.data)):
                    closed[step.entry.detail] = step.entry.text
        runs = await feed.read(_read_runs, changed, writing)
        inbox = any(frame.type in _INBOX_CHANGES for frame in frames)
        if runs or inbox or closed:
            change = ProjectChange(runs, inbox, closed)
            yield [FeedFrame(number, "project", "", None, dump(change))]


def _read_runs(reader: LogReader, changed: Mapping[str, str], writing: Mapping[str, str]) -> list[RunState]:
    runs = [reader.run(run_id) for run_id in changed]
    describe_activity(reader, runs)
    for run in runs:
        if changed[run.id] == "run.interrupted":
            # The log does not state this yet if its process can no longer write.
            run.state = "interrupted"
        elif run.id in writing:
            run.doing = {"text": "writing"}.get(writing[run.id], writing[run.id])
    return runs


async def view_moment(feed: Feed, row: RunState, at: int | None, run_id: str | None) -> MomentView:
    """Return a tree as it was after its event number `at`, or after its last one."""
    return await feed.read(_read_moment, row.id, at, run_id or row.id)


def _read_moment(reader: LogReader, root_id: str, at: int | None, run_id: str) -> MomentView:
    numbered = run_events_after(reader, root_id, 0, tree=True, limit=MAX_MOMENTS + 1)
    count = min(len(numbered), MAX_MOMENTS)
    if not count:
        raise UsageError("The run has no events.")
    runs: dict[str, ActiveRun] = {}
    story, views, seq = Story(), _StoryViews(), 0
    past = numbered[: min(at or count, count)]
    for item in past:
        event = Event(item.run_id, item.parent_id, item.root_id, item.seq, item.at, decode(item.body))
        runs.setdefault(event.run_id, ActiveRun(event.run_id)).apply(event)
        if event.run_id == run_id:
            seq = event.seq
            views.take(event, story.take(event.body, event.seq, event.at))
    last, states = past[-1], [_state_of(run) for run in runs.values()]
    return MomentView(
        place=len(past),
        count=count,
        cut=len(numbered) > count,
        type=last.type,
        run_id=last.run_id,
        began=numbered[0].at,
        at=last.at,
        runs=states,
        entries=views.flush().entries,
        seq=seq,
    )


def _state_of(run: ActiveRun) -> RunState:
    """Return the state of a followed run, with its current activity."""
    state = RunState(**{name: getattr(run, name) for name in RunState.__struct_fields__})
    state.doing = next(iter(run.asks.values()), "") or ", ".join(run.tools.values())
    return state
