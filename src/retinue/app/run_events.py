"""Events of runs as they happen, for front ends that display them: of one run, or of all runs of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from retinue.app.feed import Feed, command_text
from retinue.app.frame_story import event_of
from retinue.core.delegation import LIVE
from retinue.core.events import TRANSIENT, Event, RunEnded, RunResumed, TextDelta
from retinue.core.run_state import RunState
from retinue.errors import StateError
from retinue.log.follow import Subscription
from retinue.log.query import LogReader

if TYPE_CHECKING:
    from retinue.log.store import Log
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor

_PAGE_EVENTS = 200


class ProcessLost:
    """Replaces an event: the process of the run has died."""

    def __init__(self, at: float) -> None:
        self.at = at


async def follow_tree(feed: Feed, root_id: str) -> AsyncGenerator[Event, None]:
    """Yield the events of a run and all runs below it in the order of the log, past events first, without end."""
    async with aclosing(feed.follow(after=0, run_id=root_id, tree=True)) as batches:
        async for frames in batches:
            for event in filter(None, map(event_of, frames)):
                yield event


async def follow_run(
    feed: Feed, run_id: str, after: int = 0, *, until_end: bool = False
) -> AsyncGenerator[Event | ProcessLost, None]:
    """Yield the events of a run above `after`, past and new, of whichever process, with streamed text. With
    `until_end`, stop when the run has ended or its process has died."""
    cursor = await feed.newest_event()
    async for event in _written_events(feed, run_id, after):
        after = event.seq
        yield event
    row = await feed.find(run_id)
    if until_end and row.state not in LIVE:
        text = await feed.read(LogReader.partial, run_id)
        if text:
            yield Event(row.id, row.parent_id, row.root_id, after, row.updated_at, TextDelta(text))
        return
    is_lost = row.state == "interrupted"
    if is_lost:
        yield ProcessLost(row.updated_at)
    async with aclosing(feed.follow(after=cursor, run_id=run_id)) as batches:
        async for frame in (frame async for frames in batches for frame in frames):
            if frame.type == "run.interrupted" and not is_lost:
                is_lost = True
                yield ProcessLost((await feed.find(run_id)).updated_at)
            latest = event_of(frame)
            if latest is not None and (latest.seq > after or frame.piece is not None):
                after = max(after, latest.seq)
                is_lost = is_lost and not isinstance(latest.body, RunResumed)
                yield latest
            if until_end and (is_lost or (latest is not None and isinstance(latest.body, RunEnded))):
                return


async def _written_events(feed: Feed, run_id: str, after: int) -> AsyncGenerator[Event, None]:
    """Yield the logged events of a run above `after`, page by page."""
    while True:
        page = await feed.read(LogReader.events, run_id, after, _PAGE_EVENTS)
        for event in page:
            after = event.seq
            yield event
        if len(page) < _PAGE_EVENTS:
            return


class RunSource:
    """One run of the supervisor's project. Its methods do not block the event loop."""

    def __init__(self, supervisor: Supervisor, feed: Feed, run_id: str) -> None:
        self._supervisor = supervisor
        self._feed = feed
        self.run_id = run_id
        self._after = 0

    @property
    def node(self) -> Run | None:
        """Return the run if it belongs to this process."""
        return self._supervisor.members.get(self.run_id)

    async def row(self) -> RunState:
        """Return the state of the run in the log. Raise UnknownRunError."""
        return await self._feed.find(self.run_id)

    async def events(self) -> AsyncGenerator[Event | ProcessLost, None]:
        """Yield all events of the run, past and new, including later resumes. Ends only when it is closed, or with the
        log."""
        while True:
            live = self._here() if self.node is not None else self._elsewhere()
            async with aclosing(live) as stream:
                async for event in stream:
                    yield event
            if not self._supervisor.opened:
                return

    async def steer(self, text: str) -> str:
        """Send a message to the run. Return the answer."""
        return await command_text(self._feed.say(self.run_id, text, by=""))

    async def stop(self) -> str:
        """Stop the run. Return the answer."""
        return await command_text(self._feed.stop(self.run_id, by=""))

    async def _here(self) -> AsyncGenerator[Event | ProcessLost, None]:
        """Yield events as they happen until the run has ended, then wait for its next attempt."""
        async for event in _written_events(self._feed, self.run_id, self._after):
            self._after = event.seq
            yield event
        log = self._supervisor.project.log
        await log.flush()
        subscription = log.subscribe(run_id=self.run_id)
        try:
            # No await since the flush: events that the file does not have yet arrive in the subscription.
            for event in log.reader.events(self.run_id, self._after):
                self._after = event.seq
                yield event
            begun = log.reader.partial(self.run_id)
            if begun and self.node is not None:
                run = self.node.place
                yield Event(run.run_id, run.parent_id, run.root_id, self._after, time.time(), TextDelta(begun))
            async for event in subscription:
                if event.seq > self._after or (event.seq == self._after and isinstance(event.body, TRANSIENT)):
                    self._after = event.seq
                    yield event
        finally:
            subscription.close()

    async def _elsewhere(self) -> AsyncGenerator[Event | ProcessLost, None]:
        """Yield events while another process, or none, runs it, until it is resumed here."""
        async with aclosing(follow_run(self._feed, self.run_id, self._after)) as events:
            async for event in events:
                if isinstance(event, Event):
                    self._after = max(self._after, event.seq)
                yield event
                if self.node is not None:
                    return


EventHandler = Callable[[Event], None]
MAX_BOARD_RUNS = 50
BOARD_TYPES = ("run.created", "run.started", "run.resumed", "turn.ended", "run.ended")
# Events handled before the keyboard is served again.
EVENTS_PER_SLICE = 100


class ProcessEvents:
    """Events of all runs of this process, and of a watched tree of another process. `take` is called for every event
    and must be fast. Its exceptions go to `failed`, because a feed that silently stops would go unnoticed."""

    def __init__(self, log: Log, take: EventHandler, failed: Callable[[Exception], object] | None = None) -> None:
        self._log = log
        self._take = take
        self._failed = failed
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._subscription = self._log.subscribe()
        self._tasks.append(asyncio.create_task(self._follow(self._subscription), name="events of this process"))

    def watch(self, feed: Feed, root_id: str) -> None:
        """Follow the runs below `root_id`, which another process runs."""
        self.unwatch()
        self._watching = asyncio.create_task(self._follow(follow_tree(feed, root_id)), name="feed of another process")

    def unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._tasks.append(self._watching)
            self._watching = None

    async def close(self) -> None:
        self.unwatch()
        if self._subscription is not None:
            self._subscription.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, events: AsyncIterator[Event]) -> None:
        taken = 0
        try:
            async for event in events:
                self._take(event)
                taken += 1
                if taken % EVENTS_PER_SLICE == 0:
                    await asyncio.sleep(0)
        except StateError:
            # The writers of runs report a log that cannot be read.
            return
        except Exception as error:
            if self._failed is None:
                raise
            self._failed(error)


def read_conversation(reader: LogReader, root_id: str) -> list[tuple[RunState, list[Event]]]:
    """Return a conversation and its newest agents from the log, oldest first, each with the events that the board
    shows."""
    rows = reader.list_runs(root_id=root_id, limit=MAX_BOARD_RUNS)
    if all(row.id != root_id for row in rows):
        rows.append(reader.run(root_id))
    return [(row, [event for _, event in reader.ordered(row.id, BOARD_TYPES)]) for row in reversed(rows)]
