"""Events for readers: live subscriptions within this process, runs as JSON documents, and all events of a project.

Every durable event has a number, `events.id`. The log has one writer at a time, so numbers grow with commits: a query
for the numbers above the last one neither misses nor repeats an event. Streamed text has no number. It is read
separately, as the text that was added to the unfinished answer of each run. Bodies stay JSON, because most readers need
JSON.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import decode, dump, encode, event_to_json, flat_json
from retinue.core.events import TRANSIENT, Event, EventPlace, RunEnded, TextDelta, ThinkingDelta, ToolEnded
from retinue.core.messages import ToolResult
from retinue.core.programs import this_process
from retinue.core.run_state import RunPlace
from retinue.log.batch import has_references, resolve_references
from retinue.log.database import LIVE_STATES, NO_ROW_LIMIT
from retinue.log.query import LogReader

QueuedEvent = TypeVar("QueuedEvent")
MAX_BACKLOG_EVENTS = 10_000
"""A subscriber with a longer backlog gets no streamed pieces until it has caught up: their text arrives again in a
durable event. Durable events are never left out."""


class EventQueue(Generic[QueuedEvent]):
    """An async iterator over the events that are pushed into it, in order, until it is closed. For one reader."""

    def __init__(self) -> None:
        self._events: deque[QueuedEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    def push(self, event: QueuedEvent) -> None:
        if not self._over:
            self._events.append(event)
            self._wake()

    def close(self) -> None:
        """Accept no further events. Queued events can still be read."""
        if not self._over:
            self._over = True
            self.unsubscribe()
        self._wake()

    def unsubscribe(self) -> None:
        """Stop the source of the events. Called once."""
        raise NotImplementedError

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> QueuedEvent:
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
    """The events of the log. It ends with the run `until`, when it is closed, or when the log is closed."""

    def __init__(self, until: str | None, unsubscribe: Callable[[Subscription], None]) -> None:
        super().__init__()
        self._until = until
        self._unsubscribe = unsubscribe

    def push(self, event: Event) -> None:
        if len(self._events) >= MAX_BACKLOG_EVENTS and isinstance(event.body, TRANSIENT):
            return
        super().push(event)
        if event.run_id == self._until and isinstance(event.body, RunEnded):
            self.close()

    def unsubscribe(self) -> None:
        self._unsubscribe(self)


def export_document(reader: LogReader, run_id: str) -> Iterator[bytes]:
    """Yield a run as one JSON document, in pieces: its row, its events, the streamed text of its unfinished answer,
    and its outcome."""
    row = reader.run(run_id)
    yield b'{"run":%b,"events":[' % dump(row)
    separator = b""
    for event in reader.stream(row.id):
        yield separator + event_to_json(event)
        separator = b","
    yield b'],"partial":%b,"outcome":%b}' % (dump(reader.partial(row.id)), dump(reader.outcome(row.id)))


FEED_PAGE_EVENTS = 500
"""The number of events that are read at once, which takes some milliseconds."""
TEXT_ENDS = frozenset({"turn.started", "model.retrying", "assistant.ended", "run.resumed", "run.ended"})
"""After one of these events, text that was streamed before is complete in an event, or invalid."""

_COLUMNS = "run_id, parent_id, root_id, seq, at, events.id, type, body"
_RUN_TREE = """WITH RECURSIVE tree (id) AS (
    SELECT id FROM runs WHERE id=? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
)"""
_BODY_START = b'{"type":"'
_IS_LIVE = f"state <> 'ended' AND state IN ({LIVE_STATES})"
"""The first half lets SQLite use the index of runs that have not ended."""


class NumberedEvent(EventPlace, frozen=True):
    """One durable event as JSON. `number` is its position in the whole log, `seq` its position in the run."""

    number: int
    type: str
    body: str

    def to_json(self) -> bytes:
        """Return the event as `retinue runs tail --json` prints it."""
        body = self.body.encode()
        if not body.startswith(_BODY_START):
            # In older logs the type is elsewhere in the body.
            body = dump(decode(body))
        return flat_json(self.type, self, body)


class TextPiece(Struct, frozen=True):
    """Text that was added to an unfinished answer; `kind` is `text` or `thinking`."""

    place: RunPlace
    seq: int
    kind: str
    text: str

    @property
    def body(self) -> TextDelta | ThinkingDelta:
        return TextDelta(self.text) if self.kind == "text" else ThinkingDelta(self.text)


def last_number(reader: LogReader) -> int:
    """Return the number of the newest event of the log; 0 without events."""
    return int(reader.select("SELECT coalesce(max(id), 0) FROM events")[0][0])


def events_after(reader: LogReader, number: int, *, until: int | None = None) -> list[NumberedEvent]:
    """Return the events of all runs above `number`, up to and including `until`, in order."""
    return _select(reader, "", "1=1", (), number, until, FEED_PAGE_EVENTS)


def run_events_after(
    reader: LogReader,
    run_id: str,
    number: int,
    *,
    tree: bool = False,
    until: int | None = None,
    limit: int = FEED_PAGE_EVENTS,
) -> list[NumberedEvent]:
    """Return the same for one run, or with `tree` also for all runs below it."""
    return _select(reader, *_of(tree), (run_id,), number, until, limit)


def run_events_before(
    reader: LogReader, run_id: str, number: int | None, *, tree: bool = False, limit: int = FEED_PAGE_EVENTS
) -> list[NumberedEvent]:
    """Return the last events below `number` (None: the newest events) of one run, or with `tree` also of all runs below
    it, in order."""
    until = None if number is None else number - 1
    return _select(reader, *_of(tree), (run_id,), 0, until, limit, order="DESC")[::-1]


def _of(tree: bool) -> tuple[str, str]:
    return (_RUN_TREE, "run_id IN (SELECT id FROM tree)") if tree else ("", "run_id=?")


def _select(
    reader: LogReader,
    head: str,
    condition: str,
    values: tuple[str, ...],
    after: int,
    until: int | None,
    limit: int,
    order: str = "",
) -> list[NumberedEvent]:
    """Return events in full, with the results that some of them refer to."""
    rows = reader.select(
        f"{head} SELECT {_COLUMNS} FROM events JOIN runs ON runs.id=run_id WHERE {condition} "  # noqa: S608
        f"AND events.id>? AND events.id<=? ORDER BY events.id {order} LIMIT ?",
        (*values, after, NO_ROW_LIMIT if until is None else until, limit),
    )

    ends: dict[tuple[str, int], str] = {(row[0], row[3]): row[7] for row in rows if row[6] == "tool.ended"}

    def result_of(run_id: str, seq: int) -> ToolResult:
        query = "SELECT body FROM events WHERE run_id=? AND seq=?"
        body = decode(ends.get((run_id, seq)) or reader.select(query, (run_id, seq))[0][0])
        if not isinstance(body, ToolEnded):
            raise ValueError(f"event {seq} of run {run_id} is not the end of a call")
        return body.result

    events = []
    for row in rows:
        event = NumberedEvent(*row)
        if has_references(event.body):
            complete = resolve_references(event.body, partial(result_of, event.run_id))
            event = replace(event, body=encode(complete)[1].decode())
        events.append(event)
    return events


def live_runs(reader: LogReader) -> dict[str, RunPlace]:
    """Return the runs that are live by their rows, by id. Their processes may be dead."""
    rows = reader.select(f"SELECT id, parent_id, root_id FROM runs WHERE {_IS_LIVE}")  # noqa: S608
    return {row[0]: RunPlace(row[0], row[1], row[2]) for row in rows}


def ids_at_work(reader: LogReader) -> set[str]:
    """Return the ids of the live runs whose processes are alive."""
    here = this_process()
    alive = {name for name, owner in reader.owners().items() if owner.alive(here)}
    runs = reader.select(f"SELECT id, owner FROM runs WHERE {_IS_LIVE}")  # noqa: S608
    return {run_id for run_id, owner in runs if owner in alive}


@contextmanager
def one_moment(reader: LogReader) -> Iterator[None]:
    """Read a consistent state of the log within this context, whatever is written in the meantime."""
    reader.select("BEGIN")
    try:
        yield
    finally:
        reader.select("COMMIT")


class PartialTexts:
    """The unfinished answers of all runs, as far as they were read. Pass every event to `take`."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], TextPiece] = {}
        self._valid_from: dict[str, int] = {}
        """The event of each run after which its streamed text is valid."""
        self._last: tuple[int, str, int] = (0, "", 0)

    def take(self, event: NumberedEvent) -> None:
        """Remove the text that is complete or invalid since this event."""
        if event.type not in TEXT_ENDS:
            return
        self._valid_from[event.run_id] = event.seq
        if event.type == "run.ended":
            # Read from the log again if the run is resumed.
            del self._valid_from[event.run_id]
        for kind in ("text", "thinking"):
            self._texts.pop((event.run_id, kind), None)

    def read(self, reader: LogReader) -> list[TextPiece]:
        """Return the text that was added since the last call, one piece for each run and kind."""
        first = self._first_unread(reader)
        rows = reader.select(
            "SELECT partials.id, run_id, seq, kind, text, parent_id, root_id FROM partials "
            "JOIN runs ON runs.id=run_id WHERE partials.id>? ORDER BY partials.id",
            (first,),
        )
        texts: dict[tuple[str, str], list[str]] = {}
        newest: dict[tuple[str, str], TextPiece] = {}
        for number, run_id, seq, kind, text, parent_id, root_id in rows:
            self._last = (number, run_id, seq)
            if seq >= self._find_valid_from(reader, run_id):
                texts.setdefault((run_id, kind), []).append(text)
                newest[run_id, kind] = TextPiece(RunPlace(run_id, parent_id, root_id), seq, kind, "")
        pieces = []
        for key, piece in newest.items():
            before = self._texts[key].text if key in self._texts else ""
            text = "".join(texts[key])
            # If all pieces were read again, the text begins with the known text.
            new = text if first else text[len(before) :]
            self._texts[key] = replace(piece, text=before + new)
            if new:
                pieces.append(replace(piece, text=new))
        return pieces

    def now(self) -> list[TextPiece]:
        """Return the whole text of each unfinished answer."""
        return list(self._texts.values())

    def _first_unread(self, reader: LogReader) -> int:
        """Return the number above which pieces are new; 0 if all must be read again. SQLite reuses the numbers of
        deleted pieces, so all are read again when the last known piece is gone."""
        number, run_id, seq = self._last
        if number and reader.select("SELECT 1 FROM partials WHERE id=? AND run_id=? AND seq=?", (number, run_id, seq)):
            return number
        return 0

    def _find_valid_from(self, reader: LogReader, run_id: str) -> int:
        if run_id not in self._valid_from:
            marks = ", ".join("?" * len(TEXT_ENDS))
            query = f"SELECT coalesce(max(seq), 0) FROM events WHERE run_id=? AND type IN ({marks})"  # noqa: S608
            self._valid_from[run_id] = int(reader.select(query, (run_id, *TEXT_ENDS))[0][0])
        return self._valid_from[run_id]
