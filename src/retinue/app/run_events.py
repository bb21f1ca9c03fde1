"""Events of runs as they happen, for faces that draw them: of one run, or of all runs of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.app.feed import Feed, command_text
from retinue.core.delegation import LIVE
from retinue.core.events import TRANSIENT, Event, TextDelta
from retinue.core.run_state import RunState
from retinue.errors import StateError
from retinue.log.follow import Subscription, follow, follow_tree
from retinue.log.query import LogReader

if TYPE_CHECKING:
    from retinue.log.store import Log
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor

_PAGE_EVENTS = 200
# How often a run that is at rest elsewhere is asked whether someone took it up again.
LOOK_AGAIN_SECONDS = 1.0


class Lost:
    """In place of an event: the process of the run is gone."""

    def __init__(self, at: float) -> None:
        self.at = at


class RunSource:
    """One run of the project of `supervisor`. Nothing here blocks the event loop."""

    def __init__(self, supervisor: Supervisor, feed: Feed, run_id: str) -> None:
        self._supervisor = supervisor
        self._feed = feed
        self.run_id = run_id
        self._after = 0

    @property
    def node(self) -> Run | None:
        """Return the run, if it is one of this process."""
        return self._supervisor.members.get(self.run_id)

    async def row(self) -> RunState:
        """Return how it stands in the log. Raise UnknownRunError."""
        return await self._feed.find(self.run_id)

    async def events(self) -> AsyncGenerator[Event | Lost, None]:
        """Yield everything from its first event on, then what happens, also after it is taken up
        again. Ends only when it is closed, or with the log."""
        while True:
            async for written in self._written():
                yield written
            live = self._here() if self.node is not None else self._elsewhere()
            async with aclosing(live) as stream:
                async for event in stream:
                    yield event
            if not self._supervisor.opened:
                return

    async def steer(self, text: str) -> str:
        """Say something to the run. Return what became of it."""
        return await command_text(self._feed.say(self.run_id, text, by=""))

    async def stop(self) -> str:
        """Stop the run. Return what became of it."""
        return await command_text(self._feed.stop(self.run_id, by=""))

    async def _written(self) -> AsyncGenerator[Event, None]:
        """Yield what is in the log and was not yielded yet, page by page."""
        while True:
            found = await self._feed.read(LogReader.events, self.run_id, self._after, _PAGE_EVENTS)
            for event in found:
                self._after = event.seq
                yield event
            if len(found) < _PAGE_EVENTS:
                return

    async def _here(self) -> AsyncGenerator[Event | Lost, None]:
        """Yield events as they happen until the run has ended; then wait for its next attempt."""
        log = self._supervisor.project.log
        await log.flush()
        subscription = log.subscribe(run_id=self.run_id)
        try:
            # No await from the flush to here: what the file has not yet, the subscription will.
            for event in log.reader.events(self.run_id, self._after):
                self._after = event.seq
                yield event
            begun = log.reader.partial(self.run_id)
            if begun and self.node is not None:
                place = self.node.place
                yield Event(place.run_id, place.parent_id, place.root_id, self._after, time.time(), TextDelta(begun))
            async for event in subscription:
                if event.seq > self._after or (event.seq == self._after and isinstance(event.body, TRANSIENT)):
                    self._after = event.seq
                    yield event
        finally:
            subscription.close()

    async def _elsewhere(self) -> AsyncGenerator[Event | Lost, None]:
        """Yield events as the log grows, while another process runs it. At rest it is looked at now and then:
        someone may take it up again, here or there."""
        at_rest = False
        while self.node is None:
            row = await self.row()
            if row.state in LIVE:
                at_rest = False
                async for event in follow(self._feed.folder, self.run_id, self._after):
                    self._after = max(self._after, event.seq)
                    yield event
                row = await self.row()
            if row.state == "interrupted" and not at_rest:
                yield Lost(row.updated_at)
            at_rest = True
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


Take = Callable[[Event], None]
REMEMBERED = 50
SUMMARY = ("run.created", "run.started", "run.resumed", "turn.ended", "run.ended")
# Events taken in one go before the keyboard gets its turn again.
BATCH = 100


class ProcessEvents:
    """Of all runs of this process, and of a tree of another one while it is watched. `take` is
    called for every event and must be quick; what it raises goes to `failed`, since nobody would
    see a feed that stands still."""

    def __init__(self, log: Log, take: Take, failed: Callable[[Exception], object] | None = None) -> None:
        self._log = log
        self._take = take
        self._failed = failed
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._subscription = self._log.subscribe()
        self._tasks.append(asyncio.create_task(self._follow(self._subscription), name="events of this process"))

    def watch(self, folder: Path, root_id: str) -> None:
        """From now on also the runs below `root_id`, which another process runs."""
        self.unwatch()
        self._watching = asyncio.create_task(self._follow(follow_tree(folder, root_id)), name="feed of another process")

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
                if taken % BATCH == 0:
                    await asyncio.sleep(0)
        except StateError:
            # A log that cannot be read is reported by those who write runs.
            return
        except Exception as error:
            if self._failed is None:
                raise
            self._failed(error)


def read_conversation(reader: LogReader, root_id: str) -> list[tuple[RunState, list[Event]]]:
    """Return a conversation of the log and its newest agents, oldest first, with what the board shows of each."""
    rows = reader.list_runs(root_id=root_id, limit=REMEMBERED)
    if all(row.id != root_id for row in rows):
        rows.append(reader.run(root_id))
    return [(row, [event for _, event in reader.ordered(row.id, SUMMARY)]) for row in reversed(rows)]
