"""Past events: a page at a time, as the timeline of a tree, and as a conversation.

A conversation omits the parts that were abandoned by a rewind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.app.feed import Feed
from retinue.app.snapshot import take_tree
from retinue.core.run_state import RunState
from retinue.log.follow import NumberedEvent, run_events_after, run_events_before
from retinue.log.query import LogReader
from retinue.log.timeline import RunSpans, read_timeline


class NumberedView(Struct, frozen=True):
    """One event as in the event stream, with its number in the log of the project."""

    number: int
    event: msgspec.Raw


class HistoryPage(Struct, frozen=True):
    """Events in order. `before` and `after` are the parameters for the previous and the next page, or None."""

    run_id: str
    events: list[NumberedView]
    before: int | None
    after: int | None


class TimelineView(Struct, frozen=True):
    """The activity of each run of a tree over time, parents before children."""

    run_id: str
    runs: list[RunSpans]


async def read_history(
    feed: Feed, row: RunState, *, after: int | None, before: int | None, tree: bool, limit: int
) -> HistoryPage:
    """Return the events above `after`, or the last ones below `before`; by default the newest."""

    def read(reader: LogReader) -> HistoryPage:
        # One more event than requested shows whether there is another page.
        if after is not None:
            page = run_events_after(reader, row.id, after, tree=tree, limit=limit + 1)
            events = page[:limit]
            more_before = bool(events) and after > 0
            more_after = len(page) > limit
        else:
            page = run_events_before(reader, row.id, before, tree=tree, limit=limit + 1)
            events = page[-limit:]
            more_before = len(page) > limit
            more_after = before is not None
        return HistoryPage(
            row.id,
            [NumberedView(event.number, msgspec.Raw(event.to_json())) for event in events],
            events[0].number if more_before else None,
            events[-1].number if events and more_after else None,
        )

    return await feed.read(read)


async def draw_timeline(feed: Feed, row: RunState) -> TimelineView:
    """Return the timeline of a run and all runs below it."""

    def read(reader: LogReader) -> TimelineView:
        states = {run.id: run.state for run in take_tree(reader, row.id).runs}
        return TimelineView(row.id, read_timeline(reader, dict(states)))

    return await feed.read(read)


Spans = list[tuple[int, int]]


async def past_events(folder: Path, run_id: str, until: int) -> AsyncIterator[list[NumberedEvent]]:
    """Yield the events of a run and all runs below it, up to number `until`, in the order of the log, page by page."""
    abandoned = await asyncio.to_thread(_read_left, folder, run_id)
    after = 0
    while True:
        page = await asyncio.to_thread(_read_page, folder, run_id, after, until)
        if not page:
            return
        after = page[-1].number
        yield [event for event in page if not _is_left(event, abandoned)]


def _read_page(folder: Path, run_id: str, after: int, until: int) -> list[NumberedEvent]:
    with LogReader.open(folder) as reader:
        return run_events_after(reader, run_id, after, tree=True, until=until)


def _read_left(folder: Path, run_id: str) -> dict[str, Spans]:
    with LogReader.open(folder) as reader:
        rows = reader.select(
            "SELECT run_id, seq, body FROM events WHERE type='run.rewound' "
            "AND run_id IN (SELECT id FROM runs WHERE root_id=(SELECT root_id FROM runs WHERE id=?)) ORDER BY seq DESC",
            (run_id,),
        )
    return left_spans([(row[0], row[1], msgspec.json.decode(row[2])["to"]) for row in rows])


def left_spans(rewinds: list[tuple[str, int, int]]) -> dict[str, Spans]:
    """Return the abandoned parts of each run as pairs: the last event before the part and the first one after it.
    `rewinds` are (run, number of the rewind event, target), newest first."""
    spans_of: dict[str, Spans] = {}
    for run_id, seq, to in rewinds:
        spans = spans_of.setdefault(run_id, [])
        # A rewind may abandon an earlier rewind.
        if not any(start < seq < end for start, end in spans):
            spans.append((to, seq))
    return spans_of


def _is_left(event: NumberedEvent, abandoned: Mapping[str, Spans]) -> bool:
    return any(start < event.seq < end for start, end in abandoned.get(event.run_id, ()))
