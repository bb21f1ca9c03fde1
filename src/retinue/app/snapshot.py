"""Runs in the log at one moment."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from retinue.core.delegation import LIVE
from retinue.core.run_state import RunState
from retinue.log.follow import last_number, one_moment
from retinue.log.overview import describe_activity
from retinue.log.query import LogReader


class RunList(Struct, frozen=True):
    """Runs, newest first. `cursor` is where the event stream continues. `next` is the value of `before` for the next
    page."""

    cursor: int
    runs: list[RunState]
    next: str | None = None


class RunTree(Struct, frozen=True):
    """A run and all runs below it, parents before children. `cursor` is where the event stream continues."""

    cursor: int
    runs: list[RunState]


def find_run(reader: LogReader, run_id: str) -> RunState:
    """Find a run by its id, a prefix of it, or `@name`."""
    if not run_id.startswith("@"):
        return reader.run(run_id)
    from retinue.runs.resume import find_run as find_by_name

    return find_by_name(reader, run_id)


def find_stoppable(reader: LogReader, run_id: str, *, tree: bool) -> list[RunState]:
    """Return the runs to stop: the run itself; with `tree` the live runs of its tree, which may belong to other
    processes and may have outlived it."""
    row = find_run(reader, run_id)
    if not tree:
        return [row]
    live = [run for run in reader.tree(row) if run.state in LIVE]
    return live or [row]


def take_snapshot(reader: LogReader, **filters: Any) -> RunList:
    """Read runs and the newest event in one transaction."""
    with one_moment(reader):
        runs = reader.list_runs(**filters)
        describe_activity(reader, runs)
        return RunList(last_number(reader), runs)


def take_tree(reader: LogReader, run_id: str) -> RunTree:
    """Read a run and all runs below it in one transaction."""
    with one_moment(reader):
        runs = reader.tree(find_run(reader, run_id))
        describe_activity(reader, runs)
        return RunTree(last_number(reader), runs)
