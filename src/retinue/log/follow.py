"""Events of a run for others: as they happen, and as JSON.

Those of this process come as they become durable, those of another by polling. Other programs get the events as
lines, or all of a run as one document.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Generic, Self, TypeVar

from retinue.core.delegation import LIVE
from retinue.core.encode import dump, event_to_json
from retinue.core.events import TRANSIENT, Event, RunEnded, TextDelta, ThinkingDelta
from retinue.core.run_state import RunPlace
from retinue.log.query import LogReader

T = TypeVar("T")
BACKLOG = 10_000
"""A subscriber that is this many events behind gets no more streamed pieces until it has caught
up: what they say arrives again, whole. Durable events are never left out."""


class EventQueue(Generic[T]):
    """An async iterator over what is pushed into it, in order, until it is closed. For one reader."""

    def __init__(self) -> None:
        self._events: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    def push(self, event: T) -> None:
        if not self._over:
            self._events.append(event)
            self._wake()

    def close(self) -> None:
        """Take no further events; those already here can still be read."""
        if not self._over:
            self._over = True
            self.leave()
        self._wake()

    def leave(self) -> None:
        """End the delivery at its source; called once."""
        raise NotImplementedError

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Subscription(EventQueue[Event]):
    """The events of the log. Ends when the run it is about has ended, when it is closed, or when
    the log is."""

    def __init__(self, until: str | None, leave: Callable[[Subscription], None]) -> None:
        super().__init__()
        self._until = until
        self._leave = leave

    def push(self, event: Event) -> None:
        if len(self._events) >= BACKLOG and isinstance(event.body, TRANSIENT):
            return
        super().push(event)
        if event.run_id == self._until and isinstance(event.body, RunEnded):
            self.close()

    def leave(self) -> None:
        self._leave(self)


POLL_SECONDS = 0.1


async def follow(folder: Path, run_id: str, after: int = 0) -> AsyncIterator[Event]:
    """Events of a run above `after`, and new ones as they are committed, with streamed text
    between them as it is saved. Ends after the run's ending, or when its process is gone.

    Asking costs microseconds: SQLite keeps a number that changes with every commit.
    """
    with LogReader.open(folder) as reader:
        place = reader.run(run_id).place
        version, piece, ended = -1, 0, False
        while True:
            now = reader.version()
            if now != version:
                found = _read(reader, place, after, piece)
                if not found:
                    version = now
                for event, number in found:
                    after, piece = max((after, piece), (event.seq, number))
                    ended = isinstance(event.body, RunEnded)
                    yield event
            elif ended or reader.run(place.run_id).state not in LIVE:
                return
            else:
                await asyncio.sleep(POLL_SECONDS)


async def follow_tree(folder: Path, root_id: str) -> AsyncIterator[Event]:
    """The same for a run and all below it, as they come: what is written so far first, ordered
    by time, then new events of every run, each run's in order. Ends when nothing of the tree
    lives any more."""
    with LogReader.open(folder) as reader:
        seen: dict[str, tuple[int, int]] = {}
        over: dict[str, float] = {}
        version = -1
        while True:
            now = reader.version()
            if now == version:
                if not any(row.state in LIVE for row in reader.list_runs(root_id=root_id)):
                    return
                await asyncio.sleep(POLL_SECONDS)
                continue
            found: list[tuple[Event, int]] = []
            for row in reversed(reader.list_runs(root_id=root_id)):
                if row.state in LIVE or over.get(row.id) != row.updated_at:
                    new = _read(reader, row.place, *seen.get(row.id, (0, 0)))
                    found += new
                    if not new:
                        over[row.id] = row.updated_at
            if not found:
                version = now
            for event, number in sorted(found, key=lambda each: each[0].at):
                seen[event.run_id] = max(seen.get(event.run_id, (0, 0)), (event.seq, number))
                yield event


def _read(reader: LogReader, place: RunPlace, after: int, piece: int) -> list[tuple[Event, int]]:
    """What is new, in order: text that followed event N comes after it and before N + 1. Pieces
    are read first: one that turns into an event in between is then seen twice rather than never,
    and those are left out."""
    pieces = reader.pieces(place.run_id, piece, after)
    events = reader.events(place.run_id, after, limit=500)
    last = events[-1].seq if events else after
    found = [(event, 0) for event in events]
    for number, seq, kind, text in pieces:
        if seq == last:
            body = TextDelta(text) if kind == "text" else ThinkingDelta(text)
            found.append((Event(place.run_id, place.parent_id, place.root_id, seq, time.time(), body), number))
    return found


def export_lines(reader: LogReader, run_id: str, after: int = 0) -> Iterator[bytes]:
    """Every durable event of a run as one flat object per line, with its line feed."""
    for event in reader.stream(run_id, after=after):
        yield event_to_json(event) + b"\n"


def export_document(reader: LogReader, run_id: str) -> Iterator[bytes]:
    """A whole run as one JSON document, in pieces: its row, its events, its outcome, and what was shown
    of an answer that never became whole."""
    row = reader.run(run_id)
    yield b'{"run":%b,"events":[' % dump(row)
    separator = b""
    for event in reader.stream(row.id):
        yield separator + event_to_json(event)
        separator = b","
    yield b'],"partial":%b,"outcome":%b}' % (dump(reader.partial(row.id)), dump(reader.outcome(row.id)))
