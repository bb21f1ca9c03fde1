"""Events for readers: of this process as they happen, of a run as one JSON document, and of a whole project in order.

Every durable event has a number, `events.id`. The log has one writer at a time, so numbers grow with commits: a query
for the numbers above the last one leaves nothing out and repeats nothing. Streamed text has no number. It is read
beside the events, as the text that was added to the unfinished answer of each run. Bodies are passed on as the JSON of
the log, because most readers want JSON.
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

from retinue.core.encode import decode, dump, event_to_json, flat_json
from retinue.core.events import TRANSIENT, Event, EventPlace, RunEnded, TextDelta, ThinkingDelta
from retinue.core.programs import this_process
from retinue.core.run_state import RunPlace
from retinue.log.batch import refers, whole_json
from retinue.log.database import LIVE_STATES, NO_ROW_LIMIT
from retinue.log.query import LogReader

T = TypeVar("T")
MAX_BACKLOG_EVENTS = 10_000
"""A subscriber that is this far behind gets no more streamed pieces until it has caught up: their text arrives again in
a durable event. Durable events are never left out."""


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
        if len(self._events) >= MAX_BACKLOG_EVENTS and isinstance(event.body, TRANSIENT):
            return
        super().push(event)
        if event.run_id == self._until and isinstance(event.body, RunEnded):
            self.close()

    def leave(self) -> None:
        self._leave(self)


def export_document(reader: LogReader, run_id: str) -> Iterator[bytes]:
    """Yield a run as one JSON document, in pieces: its row, its events, its outcome, and the text that was shown
    of an answer that was never completed."""
    row = reader.run(run_id)
    yield b'{"run":%b,"events":[' % dump(row)
    separator = b""
    for event in reader.stream(row.id):
        yield separator + event_to_json(event)
        separator = b","
    yield b'],"partial":%b,"outcome":%b}' % (dump(reader.partial(row.id)), dump(reader.outcome(row.id)))


FEED_PAGE_EVENTS = 500
"""Events that are read at once: some milliseconds of work."""
VOIDS = frozenset({"turn.started", "model.retrying", "assistant.ended", "run.resumed", "run.ended"})
"""After one of these events, text that was streamed before is whole somewhere, void, or of a run that is over."""

_COLUMNS = "run_id, parent_id, root_id, seq, at, events.id, type, body"
_RUN_TREE = """WITH RECURSIVE tree (id) AS (
    SELECT id FROM runs WHERE id=? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
)"""
_BODY_START = b'{"type":"'
_IS_LIVE = f"state <> 'ended' AND state IN ({LIVE_STATES})"
"""Its first half lets SQLite use the index of runs that have not ended."""


class NumberedEvent(EventPlace, frozen=True):
    """One durable event as JSON. `number` is its place in the order of the whole log, `seq` that in its run."""

    number: int
    type: str
    body: str

    def to_json(self) -> bytes:
        """Return the event as `retinue runs tail --json` prints it."""
        body = self.body.encode()
        if not body.startswith(_BODY_START):
            # Older logs have the type elsewhere in a body.
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
    """Return the events of all runs above `number`, up to and with `until`, in order."""
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
    """Return the same of one run, or with `tree` of it and all below it."""
    return _select(reader, *_of(tree), (run_id,), number, until, limit)


def run_events_before(
    reader: LogReader, run_id: str, number: int | None, *, tree: bool = False, limit: int = FEED_PAGE_EVENTS
) -> list[NumberedEvent]:
    """Return the last events below `number` (None: the newest) of one run, or with `tree` of it and all below it, in
    order."""
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
    """Return the events with the results that some of them refer to."""
    rows = reader.select(
        f"{head} SELECT {_COLUMNS} FROM events JOIN runs ON runs.id=run_id WHERE {condition} "  # noqa: S608
        f"AND events.id>? AND events.id<=? ORDER BY events.id {order} LIMIT ?",
        (*values, after, NO_ROW_LIMIT if until is None else until, limit),
    )

    ends: dict[tuple[str, int], str] = {(row[0], row[3]): row[7] for row in rows if row[6] == "tool.ended"}

    def read_end(run_id: str, seq: int) -> str:
        return ends.get((run_id, seq)) or str(
            reader.select("SELECT body FROM events WHERE run_id=? AND seq=?", (run_id, seq))[0][0]
        )

    events = []
    for row in rows:
        event = NumberedEvent(*row)
        if refers(event.body):
            event = replace(event, body=whole_json(event.body, partial(read_end, event.run_id)))
        events.append(event)
    return events


def live_ids(reader: LogReader) -> dict[str, RunPlace]:
    """Return the runs that the log takes for live, whether or not their processes still are."""
    rows = reader.select(f"SELECT id, parent_id, root_id FROM runs WHERE {_IS_LIVE}")  # noqa: S608
    return {row[0]: RunPlace(row[0], row[1], row[2]) for row in rows}


def ids_at_work(reader: LogReader) -> set[str]:
    """Return the runs that are live and whose processes are, too."""
    here = this_process()
    alive = {name for name, owner in reader.owners().items() if owner.alive(here)}
    runs = reader.select(f"SELECT id, owner FROM runs WHERE {_IS_LIVE}")  # noqa: S608
    return {run_id for run_id, owner in runs if owner in alive}


@contextmanager
def one_moment(reader: LogReader) -> Iterator[None]:
    """Let everything that is read inside be of one moment, whatever is written meanwhile."""
    reader.select("BEGIN")
    try:
        yield
    finally:
        reader.select("COMMIT")


class PartialTexts:
    """The unfinished answers of all runs, as far as they were read. Feed it every event with `take`."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], TextPiece] = {}
        self._voids: dict[str, int] = {}
        self._last: tuple[int, str, int] = (0, "", 0)

    def take(self, event: NumberedEvent) -> None:
        """Forget the text that is complete or void since this event."""
        if event.type not in VOIDS:
            return
        self._voids[event.run_id] = event.seq
        if event.type == "run.ended":
            # Asked of the log again, should the run go on.
            del self._voids[event.run_id]
        for kind in ("text", "thinking"):
            self._texts.pop((event.run_id, kind), None)

    def read(self, reader: LogReader) -> list[TextPiece]:
        """Return what was added since the last time, one piece for each run and kind."""
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
            if seq >= self._void_of(reader, run_id):
                texts.setdefault((run_id, kind), []).append(text)
                newest[run_id, kind] = TextPiece(RunPlace(run_id, parent_id, root_id), seq, kind, "")
        pieces = []
        for key, piece in newest.items():
            before = self._texts[key].text if key in self._texts else ""
            text = "".join(texts[key])
            # Read again from the first piece, it begins with the text from before.
            new = text if first else text[len(before) :]
            self._texts[key] = replace(piece, text=before + new)
            if new:
                pieces.append(replace(piece, text=new))
        return pieces

    def now(self) -> list[TextPiece]:
        """Return the whole text of each unfinished answer."""
        return list(self._texts.values())

    def _first_unread(self, reader: LogReader) -> int:
        """Return the number above which pieces are new. SQLite gives the numbers of deleted pieces to others, so
        when the last one that was read is gone, all are read again: what is known of them is left out."""
        number, run_id, seq = self._last
        if number and reader.select("SELECT 1 FROM partials WHERE id=? AND run_id=? AND seq=?", (number, run_id, seq)):
            return number
        return 0

    def _void_of(self, reader: LogReader, run_id: str) -> int:
        """Return the event of a run after which its streamed text is valid."""
        if run_id not in self._voids:
            marks = ", ".join("?" * len(VOIDS))
            query = f"SELECT coalesce(max(seq), 0) FROM events WHERE run_id=? AND type IN ({marks})"  # noqa: S608
            self._voids[run_id] = int(reader.select(query, (run_id, *VOIDS))[0][0])
        return self._voids[run_id]
