"""Runs as JSON for other programs: their events as lines, or all of a run as one document."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.log.encode import dump, event_to_json
from retinue.log.query import LogReader


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
