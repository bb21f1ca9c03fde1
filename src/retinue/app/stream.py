"""The events of a project as they happen, for any number of clients that connect, leave and reconnect.

One reader follows the log for all clients of a project. New events are appended to one short list, which every client
reads at its own pace; nothing is copied per client. A client that is slower than the list must reconnect
(`BehindError`); with the number of its last event it misses nothing. A run never waits for a client.

A client receives, in this order, without gaps or duplicates:

1. durable events above its number, from the log 2. the text so far of every answer that is being written, once
(`text.partial`, `thinking.partial`) 3. everything that happens from then on: durable events, `text.delta` and
`thinking.delta`, and notices

Notices have no number. `run.interrupted` means that the process of a live run has died, or can no longer record it;
`detail` states which. `inbox.waiting` means that the waiting items have changed; it has their ids.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.encode import dump, flat_json
from retinue.core.events import EventPlace
from retinue.core.run_state import RunPlace
from retinue.errors import RetinueError
from retinue.log.database import backend_of
from retinue.log.follow import (
    FEED_PAGE_EVENTS,
    NumberedEvent,
    PartialTexts,
    TextPiece,
    events_after,
    ids_at_work,
    last_number,
    live_runs,
    one_moment,
    run_events_after,
)
from retinue.log.inbox import waiting_ids
from retinue.log.query import LogReader

LOG_POLL_SECONDS = 0.05
LIVENESS_SECONDS = 1.0
MAX_FRAMES = 4096
"""Frames that a client may be behind. A busy project writes fewer in ten seconds."""
MAX_FRAME_BYTES = 32 * 2**20


class BehindError(Exception):
    """A client is so slow that its next frames are no longer in memory. It may reconnect."""


class FeedFrame(Struct, frozen=True):
    """One event for clients. `number` is None for deltas and notices, which are not in the log."""

    number: int | None
    type: str
    run_id: str
    parent_id: str | None
    data: bytes
    """The event as one line of JSON."""
    piece: TextPiece | None = None
    """The text of a delta, or the text so far."""

    @property
    def is_partial(self) -> bool:
        """Whether it contains the text so far of an unfinished answer."""
        return self.type.endswith(".partial")


PROCESS_GONE_TEXT = "Its process is gone. It can be resumed."


class EventScope(Struct):
    """The runs whose events a client wants: all, one, or with `tree` one and all runs below it."""

    run_id: str | None = None
    tree: bool = False
    below: set[str] | None = None

    def has(self, run_id: str, parent_id: str | None) -> bool:
        """Return whether an event of this run is wanted. A run is created before any run below it."""
        if self.run_id is None or not run_id:
            return True
        if not self.tree or run_id == self.run_id:
            return run_id == self.run_id
        if self.below is None:
            self.below = {self.run_id}
        if run_id not in self.below and parent_id in self.below:
            self.below.add(run_id)
        return run_id in self.below


class EventHub:
    """The event stream of one project. Use from one event loop; it reads while at least one client is connected."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._frames: list[FeedFrame] = []
        self._bytes = 0
        self._start = 0
        """The place of the first frame that is still here. Places count all frames there ever were."""
        self._number = 0
        self._texts = PartialTexts()
        self._live: dict[str, RunPlace] = {}
        self._waiting: tuple[str, ...] = ()
        self._clients = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._failure: RetinueError | None = None

    @property
    def _end(self) -> int:
        return self._start + len(self._frames)

    async def follow(self, after: int | None = None, scope: EventScope | None = None) -> AsyncIterator[list[FeedFrame]]:
        """Yield the events above `after` (None: from now on) and everything that follows, in batches, without end.
        Raise BehindError for a client that is too slow, StateError if the log cannot be read."""
        scope = scope or EventScope()
        await self._join()
        try:
            # Everything up to `until` is history; frames from `start` on come after it.
            until, start, pieces = self._number, self._end, self._partials(scope)
            if scope.tree and scope.run_id is not None:
                scope.below = await asyncio.to_thread(self._descendants, scope.run_id)
            if after is not None:
                async for page in self._history(after, until, scope):
                    yield page
            partials = [partial_frame(piece) for piece in pieces]
            shown = [frame for frame in partials if scope.has(frame.run_id, frame.parent_id)]
            if shown:
                yield shown
            async for frames in self._future(start, scope):
                yield frames
        finally:
            self._leave()

    def _partials(self, scope: EventScope) -> list[TextPiece]:
        """Return the unfinished answers; for one run also the one that its death cut off."""
        if scope.run_id is not None:
            return self._texts.now()
        return [piece for piece in self._texts.now() if piece.place.run_id in self._live]

    async def close(self) -> None:
        """Stop reading. Connected clients get an error at their next read."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def _history(self, after: int, until: int, scope: EventScope) -> AsyncIterator[list[FeedFrame]]:
        while after < until:
            page = await asyncio.to_thread(_page, self._folder, after, until, scope)
            if page:
                yield [event_frame(event) for event in page]
            if len(page) < FEED_PAGE_EVENTS:
                return
            after = page[-1].number

    async def _future(self, start: int, scope: EventScope) -> AsyncIterator[list[FeedFrame]]:
        while True:
            if self._failure is not None:
                raise self._failure
            if start < self._start:
                raise BehindError
            new = self._frames[start - self._start :]
            start = self._end
            frames = [frame for frame in new if scope.has(frame.run_id, frame.parent_id)]
            if frames:
                yield frames
            elif not new:
                await self._changed.wait()

    def _descendants(self, run_id: str) -> set[str]:
        run_ids = {run_id}
        with LogReader.open(self._folder) as reader:
            waiting = [run_id]
            while waiting:
                children = [row.id for row in reader.list_runs(parent_id=waiting.pop())]
                run_ids.update(children)
                waiting += children
        return run_ids

    # Reading

    async def _join(self) -> None:
        self._clients += 1
        if self._task is None:
            self._failure = None
            reader = await asyncio.to_thread(LogReader.open, self._folder)
            if self._task is not None:
                # Another client has started it meanwhile.
                reader.close()
                return
            self._begin(reader)
            self._task = asyncio.create_task(self._read(reader), name="events for clients")

    def _leave(self) -> None:
        self._clients -= 1
        if self._clients == 0 and self._task is not None:
            self._task.cancel()
            self._task = None

    def _begin(self, reader: LogReader) -> None:
        """Start reading here: everything before is history."""
        self._texts = PartialTexts()
        with one_moment(reader):
            self._number = last_number(reader)
            self._texts.read(reader)
            self._live = live_runs(reader)
            self._waiting = waiting_ids(reader)

    async def _read(self, reader: LogReader) -> None:
        version = -1
        looked = time.monotonic()
        try:
            while not await asyncio.to_thread(backend_of(self._folder).exists):  # noqa: ASYNC110
                # Another process creates it.
                await asyncio.sleep(LIVENESS_SECONDS)
            if not self._number:
                # It may have been opened before the file existed.
                reader.close()
                reader = LogReader.open(self._folder)
            while True:
                now = reader.version()
                if now != version:
                    # More than one page: the next read must not wait for another commit.
                    version = -1 if self._take_new(reader) else now
                if time.monotonic() - looked >= LIVENESS_SECONDS:
                    looked = time.monotonic()
                    self._notice_interrupted(reader)
                await asyncio.sleep(0 if version == -1 else LOG_POLL_SECONDS)
        except RetinueError as error:
            self._failure = error
            self._task = None
            self._announce()
        finally:
            reader.close()

    def _take_new(self, reader: LogReader) -> bool:
        """Read new events from the log. Return whether there may be more."""
        with one_moment(reader):
            events = events_after(reader, self._number)
            # Text must come after the events that precede it, so it waits until those are read.
            all_read = len(events) < FEED_PAGE_EVENTS
            for event in events:
                self._texts.take(event)
            pieces = self._texts.read(reader) if all_read else []
            waiting = waiting_ids(reader) if all_read else self._waiting
        frames = [event_frame(event) for event in events]
        for event in events:
            self._number = event.number
            if event.type == "run.ended":
                self._live.pop(event.run_id, None)
            elif event.type in ("run.created", "run.resumed"):
                self._live[event.run_id] = RunPlace(event.run_id, event.parent_id, event.root_id)
        frames += [text_frame(piece, f"{piece.kind}.delta") for piece in pieces]
        if waiting != self._waiting:
            self._waiting = waiting
            frames.append(_notice("inbox.waiting", {"ids": waiting}))
        self._put(frames)
        return not all_read

    def _notice_interrupted(self, reader: LogReader) -> None:
        """Send notices for runs whose process died, which no event reports."""
        frames = []
        # The end of a run may be in the log but not read yet, so check each apparently dead run.
        for run_id in self._live.keys() - ids_at_work(reader):
            if reader.run(run_id).state == "interrupted":
                frames.append(_interrupted(self._live.pop(run_id), PROCESS_GONE_TEXT))
        self._put(frames)

    def break_off(self, run_id: str, detail: str) -> None:
        """Notify clients of a run that this process can no longer record."""
        run = self._live.pop(run_id, None)
        if run is not None:
            self._put([_interrupted(run, detail)])

    def _put(self, frames: list[FeedFrame]) -> None:
        if not frames:
            return
        self._frames += frames
        self._bytes += sum(len(frame.data) for frame in frames)
        gone = 0
        while len(self._frames) - gone > MAX_FRAMES or self._bytes > MAX_FRAME_BYTES:
            self._bytes -= len(self._frames[gone].data)
            gone += 1
        if gone:
            del self._frames[:gone]
            self._start += gone
        self._announce()

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _page(folder: Path, after: int, until: int, scope: EventScope) -> list[NumberedEvent]:
    """Read a page, with a separate connection: a client may leave while it reads, and closing a connection in use ends
    the process."""
    with LogReader.open(folder) as reader:
        if scope.run_id is None:
            return events_after(reader, after, until=until)
        return run_events_after(reader, scope.run_id, after, tree=scope.tree, until=until)


def event_frame(event: NumberedEvent) -> FeedFrame:
    return FeedFrame(event.number, event.type, event.run_id, event.parent_id, event.to_json())


def partial_frame(piece: TextPiece) -> FeedFrame:
    """Return the frame with the text so far of an unfinished answer."""
    return text_frame(piece, f"{piece.kind}.partial")


def text_frame(piece: TextPiece, kind: str) -> FeedFrame:
    run = piece.place
    where = EventPlace(run.run_id, run.parent_id, run.root_id, piece.seq, time.time())
    data = flat_json(kind, where, dump({"type": kind, "text": piece.text}))
    return FeedFrame(None, kind, run.run_id, run.parent_id, data, piece)


def _interrupted(run: RunPlace, detail: str) -> FeedFrame:
    fields = {"parent_id": run.parent_id, "root_id": run.root_id, "detail": detail}
    return _notice("run.interrupted", fields, run)


def _notice(kind: str, fields: Mapping[str, object], run: RunPlace | None = None) -> FeedFrame:
    run_id = run.run_id if run is not None else ""
    parent_id = run.parent_id if run is not None else None
    data = dump({"type": kind, "run_id": run_id or None, "at": time.time(), **fields})
    return FeedFrame(None, kind, run_id, parent_id, data)
