"""A conversation as it is now, from its first event: without the parts that a person went back behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from retinue.log.query import LogReader
from retinue.log.tail import NumberedEvent, run_events_after

Spans = list[tuple[int, int]]


async def past_events(folder: Path, run_id: str, until: int) -> AsyncIterator[list[NumberedEvent]]:
    """Yield the events of a run and of all below it up to the number `until`, in the order of the log, page by page."""
    left = await asyncio.to_thread(_read_left, folder, run_id)
    after = 0
    while True:
        page = await asyncio.to_thread(_read_page, folder, run_id, after, until)
        if not page:
            return
        after = page[-1].number
        yield [event for event in page if not _is_left(event, left)]


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
    """Return the parts that were left, by run, as numbers of the last event before and the first one after each.
    `rewinds` are (run, number of the event, where it went back to), the newest first."""
    found: dict[str, Spans] = {}
    for run_id, seq, to in rewinds:
        spans = found.setdefault(run_id, [])
        # Going back may have left an earlier going back behind.
        if not any(start < seq < end for start, end in spans):
            spans.append((to, seq))
    return found


def _is_left(event: NumberedEvent, left: Mapping[str, Spans]) -> bool:
    return any(start < event.seq < end for start, end in left.get(event.run_id, ()))
