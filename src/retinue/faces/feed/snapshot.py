"""Runs as the log has them at one moment."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from retinue.core.delegation import LIVE
from retinue.log.overview import RunLabel, describe_activity, run_labels
from retinue.log.query import LogReader
from retinue.log.rows import RunRow
from retinue.log.tail import last_number, one_moment


class Snapshot(Struct, frozen=True):
    """Runs as they stood at one moment. Events above `cursor` tell what happened since."""

    cursor: int
    runs: list[RunRow]
    labels: dict[str, RunLabel]
    doing: dict[str, str]
    """What each live run is doing."""


def find_run(reader: LogReader, run_id: str) -> RunRow:
    """Return the run of that id, its beginning, or `@name`."""
    if not run_id.startswith("@"):
        return reader.run(run_id)
    from retinue.runs.resume import find_run as find_by_name

    return find_by_name(reader, run_id)


def find_stoppable(reader: LogReader, run_id: str, *, tree: bool) -> list[RunRow]:
    """Return the runs that must be told to stop: the run itself; with `tree` those at work in its tree, since runs
    below it may be of other processes and may have outlived it."""
    row = find_run(reader, run_id)
    if not tree:
        return [row]
    live = [each for each in reader.tree(row) if each.state in LIVE]
    return live or [row]


def take_snapshot(reader: LogReader, **filters: Any) -> Snapshot:
    """Read runs, their labels and the newest event in one moment."""
    with one_moment(reader):
        rows = reader.list_runs(**filters)
        return _snapshot(reader, rows)


def take_tree(reader: LogReader, run_id: str) -> Snapshot:
    """Read a run with all below it in one moment."""
    with one_moment(reader):
        return _snapshot(reader, reader.tree(find_run(reader, run_id)))


def _snapshot(reader: LogReader, rows: list[RunRow]) -> Snapshot:
    labels = run_labels(reader, [row.id for row in rows])
    return Snapshot(last_number(reader), rows, labels, describe_activity(reader, rows))
