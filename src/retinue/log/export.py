"""Runs and events as JSON for other programs."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.log.encode import dump, event_to_json, outcome_to_json
from retinue.log.query import Reader

__all__ = ["dump", "event_to_json", "export_document", "export_lines", "outcome_to_json"]


def export_lines(reader: Reader, run_id: str, after: int = 0) -> Iterator[bytes]:
    """Every durable event of a run as one flat object per line, with its line feed."""
    for event in reader.events(run_id, after):
        yield event_to_json(event) + b"\n"


def export_document(reader: Reader, run_id: str) -> bytes:
    """A whole run as one JSON document: its row, its events, its outcome, and what was shown
    of an answer that never became whole."""
    row = reader.run(run_id)
    events = reader.events(row.id)
    return b'{"run":%b,"events":[%b],"partial":%b,"outcome":%b}' % (
        dump(row),
        b",".join(event_to_json(event) for event in events),
        dump(reader.partial(row.id)),
        dump(reader.outcome(row.id)),
    )
