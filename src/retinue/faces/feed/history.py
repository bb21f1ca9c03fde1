"""What has happened: events a page at a time, and when each run of a tree did what."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from retinue.faces.feed.feed import Feed
from retinue.faces.feed.snapshot import take_tree
from retinue.log.query import LogReader
from retinue.log.rows import RunRow
from retinue.log.tail import NumberedEvent, run_events_after, run_events_before
from retinue.log.timeline import RunSpans, read_timeline


class NumberedView(Struct, frozen=True):
    """One event with its number in the log of the project. `event` is as in the event stream."""

    number: int
    event: msgspec.Raw


class HistoryPage(Struct, frozen=True):
    """Events in their order. `before` and `after` are the values of these parameters for the page before and the
    next one; None where there is none."""

    run_id: str
    events: list[NumberedView]
    before: int | None
    after: int | None


class TimelineView(Struct, frozen=True):
    """When each run of a tree did what, parents before their children."""

    run_id: str
    runs: list[RunSpans]


async def read_history(
    feed: Feed, row: RunRow, *, after: int | None, before: int | None, tree: bool, limit: int
) -> HistoryPage:
    """Return the events above `after`, or the last ones below `before`; without both, the newest."""

    def read(reader: LogReader) -> HistoryPage:
        # One more than wanted shows whether there is another page.
        if after is not None:
            found = run_events_after(reader, row.id, after, tree=tree, limit=limit + 1)
            events = found[:limit]
            more_before = bool(events) and after > 0
            more_after = len(found) > limit
        else:
            found = run_events_before(reader, row.id, before, tree=tree, limit=limit + 1)
            events = found[-limit:]
            more_before = len(found) > limit
            more_after = before is not None
        return HistoryPage(
            row.id,
            [_view(event) for event in events],
            events[0].number if more_before else None,
            events[-1].number if events and more_after else None,
        )

    found: HistoryPage = await feed.read(read)
    return found


def _view(event: NumberedEvent) -> NumberedView:
    return NumberedView(event.number, msgspec.Raw(event.to_json()))


async def draw_timeline(feed: Feed, row: RunRow) -> TimelineView:
    """Return the spans of a run and all below it."""

    def read(reader: LogReader) -> TimelineView:
        states = {each.id: each.state for each in take_tree(reader, row.id).runs}
        return TimelineView(row.id, read_timeline(reader, dict(states)))

    found: TimelineView = await feed.read(read)
    return found
