"""A run and the runs below it, as the log has them."""

from __future__ import annotations

from retinue.log.query import Reader
from retinue.log.rows import RunRow


def with_descendants(reader: Reader, row: RunRow) -> list[RunRow]:
    """Parents before their children."""
    found, waiting = [], [row]
    while waiting:
        each = waiting.pop(0)
        found.append(each)
        waiting += reversed(reader.list_runs(parent_id=each.id))
    return found
