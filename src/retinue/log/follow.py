"""Events of a run for others: those of this process as they happen, and as JSON, as lines or all of a run as one
document.

The events of a whole project in the order they were committed, for those who watch all of its runs.

Every durable event has a number, `events.id`. SQLite has one writer at a time, so numbers grow with commits: asking
for what is above the last number leaves nothing out and repeats nothing. Streamed text has no number of its own. It
is read beside the events, as what was added to the unfinished answer of each run.

Bodies are passed on as the JSON that the log holds: most of them go to programs that want JSON.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import decode, dump, event_to_json, flat_json
from retinue.core.events import TRANSIENT, Event, RunEnded, TextDelta, ThinkingDelta
from retinue.core.programs import this_process
from retinue.core.run_state import RunPlace
from retinue.log.batch import refers, whole_json
from retinue.log.database import LIVE_STATES
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


FEED_PAGE_EVENTS = 500
"""Events that are read at once: some milliseconds of work."""
VOIDS = frozenset({"turn.started", "model.retrying", "assistant.ended", "run.resumed", "run.ended"})
"""After one of these events, text that was streamed before is whole somewhere, void, or of a run that is over."""

_COLUMNS = "events.id, run_id, parent_id, root_id, seq, at, type, body"
_TREE = """WITH RECURSIVE tree (id) AS (
    SELECT id FROM runs WHERE id=? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
)"""
_BEGINNING = b'{"type":"'
_LIVE = f"state <> 'ended' AND state IN ({LIVE_STATES})"
"""Its first half lets SQLite use the index of runs that have not ended."""


class NumberedEvent(Struct, frozen=True):
    """One durable event. `number` is its place in the order of the whole log, `seq` that in its run."""

    number: int
    run_id: str
    parent_id: str | None
    root_id: str
    seq: int
    at: float
    type: str
    body: str

    def to_json(self) -> bytes:
        """Return the event as `retinue runs tail --json` prints it."""
        body = self.body.encode()
        if not body.startswith(_BEGINNING):
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


def events_after(
    reader: LogReader, number: int, *, until: int | None = None, limit: int = FEED_PAGE_EVENTS
) -> list[NumberedEvent]:
    """Return the events of all runs above `number`, up to and with `until`, in order."""
    query = f"SELECT {_COLUMNS} FROM events JOIN runs ON runs.id=run_id WHERE events.id>? AND events.id<=?"  # noqa: S608
    rows = reader.select(f"{query} ORDER BY events.id LIMIT ?", (number, _end(until), limit))
    return _whole(reader, rows)


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
    head, which = "", "run_id=?"
    if tree:
        head, which = _TREE, "run_id IN (SELECT id FROM tree)"
    query = f"{head} SELECT {_COLUMNS} FROM events JOIN runs ON runs.id=run_id WHERE {which}"  # noqa: S608
    rows = reader.select(
        f"{query} AND events.id>? AND events.id<=? ORDER BY events.id LIMIT ?", (run_id, number, _end(until), limit)
    )
    return _whole(reader, rows)


def _whole(reader: LogReader, rows: Sequence[Any]) -> list[NumberedEvent]:
    """Return the events with the results that some of them refer to."""
    ends: dict[tuple[str, int], str] = {}
    found = []
    for row in rows:
        event = NumberedEvent(*row)
        if event.type == "tool.ended":
            ends[event.run_id, event.seq] = event.body
        elif refers(event.body):
            event = replace(event, body=whole_json(event.body, partial(_end_of_call, reader, ends, event.run_id)))
        found.append(event)
    return found


def _end_of_call(reader: LogReader, known: Mapping[tuple[str, int], str], run_id: str, seq: int) -> str:
    text = known.get((run_id, seq))
    if text is None:
        text = str(reader.select("SELECT body FROM events WHERE run_id=? AND seq=?", (run_id, seq))[0][0])
    return text


def run_events_before(
    reader: LogReader, run_id: str, number: int | None, *, tree: bool = False, limit: int = FEED_PAGE_EVENTS
) -> list[NumberedEvent]:
    """Return the last events below `number` (None: the newest) of one run, or with `tree` of it and all below it, in
    order."""
    head, which = "", "run_id=?"
    if tree:
        head, which = _TREE, "run_id IN (SELECT id FROM tree)"
    query = f"{head} SELECT {_COLUMNS} FROM events JOIN runs ON runs.id=run_id WHERE {which}"  # noqa: S608
    rows = reader.select(f"{query} AND events.id<? ORDER BY events.id DESC LIMIT ?", (run_id, _end(number), limit))
    return _whole(reader, list(reversed(rows)))


def _end(until: int | None) -> int:
    return 2**62 if until is None else until


def live_ids(reader: LogReader) -> dict[str, RunPlace]:
    """Return the runs that the log takes for live, whether or not their processes still are."""
    rows = reader.select(f"SELECT id, parent_id, root_id FROM runs WHERE {_LIVE}")  # noqa: S608
    return {row[0]: RunPlace(row[0], row[1], row[2]) for row in rows}


def ids_at_work(reader: LogReader) -> set[str]:
    """Return the runs that are live and whose processes are, too."""
    here = this_process()
    alive = {name for name, owner in reader.owners().items() if owner.alive(here)}
    runs = reader.select(f"SELECT id, owner FROM runs WHERE {_LIVE}")  # noqa: S608
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
        """Forget what is whole or void since this event."""
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
        found: dict[tuple[str, str], list[str]] = {}
        first = self._first_unread(reader)
        rows = reader.select(
            "SELECT partials.id, run_id, seq, kind, text, parent_id, root_id FROM partials "
            "JOIN runs ON runs.id=run_id WHERE partials.id>? ORDER BY partials.id",
            (first,),
        )
        places: dict[tuple[str, str], tuple[RunPlace, int]] = {}
        for number, run_id, seq, kind, text, parent_id, root_id in rows:
            self._last = (number, run_id, seq)
            if seq >= self._void_of(reader, run_id):
                found.setdefault((run_id, kind), []).append(text)
                places[run_id, kind] = (RunPlace(run_id, parent_id, root_id), seq)
        pieces = []
        for key, texts in found.items():
            place, seq = places[key]
            piece = self._add(TextPiece(place, seq, key[1], "".join(texts)), whole=first == 0)
            if piece.text:
                pieces.append(piece)
        return pieces

    def now(self) -> list[TextPiece]:
        """Return the whole text of each unfinished answer."""
        return list(self._texts.values())

    def _add(self, piece: TextPiece, *, whole: bool) -> TextPiece:
        """Keep the text, and return the part of it that is new."""
        key = (piece.place.run_id, piece.kind)
        known = self._texts[key].text if key in self._texts else ""
        new = piece.text[len(known) :] if whole else piece.text
        self._texts[key] = TextPiece(piece.place, piece.seq, piece.kind, known + new)
        return TextPiece(piece.place, piece.seq, piece.kind, new)

    def _first_unread(self, reader: LogReader) -> int:
        """Return the number above which pieces are new. SQLite gives the numbers of deleted pieces to others, so
        when the last one that was read is gone, all are read again: what is known of them is left out."""
        number, run_id, seq = self._last
        if number and reader.select("SELECT 1 FROM partials WHERE id=? AND run_id=? AND seq=?", (number, run_id, seq)):
            return number
        return 0

    def _void_of(self, reader: LogReader, run_id: str) -> int:
        """Return the event of a run after which its streamed text counts."""
        known = self._voids.get(run_id)
        if known is None:
            marks = ", ".join("?" * len(VOIDS))
            rows = reader.select(
                f"SELECT seq FROM events WHERE run_id=? AND type IN ({marks}) ORDER BY seq DESC LIMIT 1",  # noqa: S608
                (run_id, *VOIDS),
            )
            known = self._voids[run_id] = int(rows[0][0]) if rows else 0
        return known
