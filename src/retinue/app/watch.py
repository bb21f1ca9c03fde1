"""One run while a caller waits for it: its status, its questions, and its current activity."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from retinue.app.feed import Feed
from retinue.app.frame_story import event_of
from retinue.app.snapshot import find_run
from retinue.app.stream import FeedFrame
from retinue.core.delegation import LIVE
from retinue.core.events import ToolEnded, ToolStarted
from retinue.core.messages import ToolCall
from retinue.core.outcome import Outcome
from retinue.core.permission import InboxItem
from retinue.core.run_state import RunState
from retinue.errors import RetinueError
from retinue.log.follow import last_number, one_moment
from retinue.log.inbox import items, opening_number
from retinue.log.query import LogReader
from retinue.log.replay import describe_call


class RunSnapshot(Struct, frozen=True):
    """A run at one moment. `waiting` are the questions of it and the runs below it, oldest first. `asked` is the record
    of who requested it: `by`, and for a run with a key the digest of its `order`."""

    row: RunState
    outcome: Outcome | None
    waiting: tuple[InboxItem, ...]
    asked: Mapping[str, str]

    @property
    def live(self) -> bool:
        return self.row.state in LIVE

    @property
    def cut_off(self) -> bool:
        """Whether its process died before the run ended, without a stop or a limit."""
        if self.row.state == "interrupted":
            return True
        return self.outcome is not None and self.outcome.stopped_by == "program"


async def snapshot_run(feed: Feed, run_id: str) -> RunSnapshot:
    """Return the current state of a run, found by its id, a prefix of it, or `@name`. Raise UnknownRunError."""
    return await feed.read(_read_snapshot, run_id)


def _read_snapshot(reader: LogReader, run_id: str) -> RunSnapshot:
    row = find_run(reader, run_id)
    waiting = []
    for item in (entry.item for entry in items(reader)):
        if row.id in (item.run_id, item.root_id):
            waiting.append(item)
    first = reader.created(row.id)
    asked = first.options.asked if first is not None else {}
    outcome = reader.outcome(row.id) if row.state == "ended" else None
    return RunSnapshot(row, outcome, tuple(waiting), asked)


async def find_waiting(feed: Feed, root_id: str, newest_event: int) -> list[InboxItem]:
    """Return the questions of a tree's runs, oldest first, as of `newest_event`: a client must have the call of an item
    before the item."""

    def read(reader: LogReader) -> list[InboxItem]:
        waiting = []
        for row in items(reader):
            if row.item.root_id == root_id and opening_number(reader, row.item) <= newest_event:
                waiting.append(row.item)
        return waiting

    return await feed.read(read)


class _CallTracker:
    """The calls of a run and the runs below it: the current one, or the last one."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], str] = {}
        self._last = ""

    def began(self, run_id: str, call: ToolCall) -> None:
        self._last = self._open[run_id, call.id] = describe_call(call)

    def ended(self, run_id: str, call_id: str) -> None:
        self._last = self._open.pop((run_id, call_id), self._last)

    def __str__(self) -> str:
        for text in reversed(self._open.values()):
            return text
        return f"after {self._last}" if self._last else ""


def _read_position(reader: LogReader, run_id: str | None, calls: bool) -> tuple[int, _CallTracker]:
    """Return the number of the newest event and, with `calls`, the last call of the run."""
    recent_calls, ended = _CallTracker(), set()
    with one_moment(reader):
        if calls and run_id is not None:
            for _, event in reader.ordered(run_id, ("tool.started", "tool.ended"), newest_first=True):
                if isinstance(event.body, ToolEnded):
                    ended.add(event.body.call_id)
                    continue
                assert isinstance(event.body, ToolStarted)
                recent_calls.began(run_id, event.body.call)
                if event.body.call.id in ended:
                    recent_calls.ended(run_id, event.body.call.id)
                break
        return last_number(reader), recent_calls


class RunWatch:
    """Watches a run and the runs below it, or all runs of the project; with `calls` also every call. Use with `async
    with`. The run continues after the block."""

    def __init__(self, feed: Feed, run_id: str | None = None, *, calls: bool = False) -> None:
        self._feed = feed
        self._run_id = run_id
        self._changed = asyncio.Event()
        self._last = 0
        self._calls = calls
        self._task: asyncio.Task[None] | None = None
        self._doing = _CallTracker()

    async def __aenter__(self) -> RunWatch:
        # A caller that reads the run after this is notified of every later change.
        self._last, self._doing = await self._feed.read(_read_position, self._run_id, self._calls)
        self._task = asyncio.create_task(self._follow(), name=f"watch {self._run_id}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def doing(self) -> str:
        """With `calls`: the current call of it or a run below it, or the last one."""
        return str(self._doing)

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait until something relevant happens. Return False if nothing did in time."""
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    async def _follow(self) -> None:
        try:
            async for frames in self._feed.follow(after=self._last, run_id=self._run_id, tree=True):
                for frame in frames:
                    self._take(frame)
        except RetinueError:
            # The caller gets the error when it reads the run.
            self._changed.set()

    def _take(self, frame: FeedFrame) -> None:
        if self._calls and frame.type in ("tool.started", "tool.ended"):
            event = event_of(frame)
            if event is not None and isinstance(event.body, ToolStarted):
                self._doing.began(frame.run_id, event.body.call)
                self._changed.set()
            elif event is not None and isinstance(event.body, ToolEnded):
                self._doing.ended(frame.run_id, event.body.call_id)
        if frame.type in _STATUS_TYPES:
            self._changed.set()


_STATUS_TYPES = frozenset(
    {"run.ended", "run.interrupted", "run.resumed", "inbox.waiting", "inbox.opened", "inbox.closed"}
)


async def wait_until_ended(feed: Feed, run_ids: Sequence[str], seconds: float) -> list[RunState]:
    """Return runs once all have ended, or after `seconds`."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    async with RunWatch(feed) as watch:
        while True:
            rows = await feed.read(lambda reader: [reader.run(run_id) for run_id in run_ids])
            if all(row.state not in LIVE for row in rows) or not await watch.wait_for_change(deadline - clock()):
                return rows
