"""Past runs: exported as files, compared, replayed, and sent as traces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.app.lookup import locate_run
from retinue.app.snapshot import take_tree
from retinue.capabilities.telemetry.attach import send_past
from retinue.core.delegation import LIVE
from retinue.core.messages import Message
from retinue.core.run_state import RunState
from retinue.core.usage import Usage
from retinue.errors import StateError, UsageError
from retinue.guard.redact import Redactor
from retinue.log.query import LogReader
from retinue.log.replay import describe_call as describe_call
from retinue.log.replay import replay
from retinue.models.keys import environment
from retinue.recordings.cassette import SUFFIX, Cassette, export_cassette, parse_cassette, read_cassette
from retinue.recordings.compare import CallPair as CallPair
from retinue.recordings.compare import Comparison as Comparison
from retinue.recordings.compare import RecordingFacts as RecordingFacts
from retinue.recordings.compare import compare
from retinue.recordings.replay import play_again
from retinue.settings.places import home

if TYPE_CHECKING:
    from retinue.capabilities.telemetry.attach import SentTrace


class ReplayReport(Struct, frozen=True):
    """A replayed recording, compared with the new run."""

    comparison: Comparison
    notes: Sequence[str]
    same: bool


class RecordedMoment(Struct, frozen=True):
    """The state of a recorded run after event `seq`."""

    seq: int
    messages: Sequence[Message]
    turn: int
    usage: Usage


def export_run(folder: Path, row: RunState) -> bytes:
    """Return a past run with every run below it as a cassette without secrets. Raise StateError for a running run."""
    if row.state in LIVE:
        raise StateError(f"Run {row.id} is still at work.", remedy="Export it when it has ended.")
    return _export(folder, row)


def _export(folder: Path, row: RunState) -> bytes:
    with LogReader.open(folder) as reader:
        return export_cassette(reader, row, home(), Redactor(environment()))


def send_trace(folder: Path, row: RunState, *, content: bool) -> tuple[SentTrace, int]:
    """Send a past run with every run below it as a trace. Return the trace and the number of runs. Raise StateError if
    the collector rejects it."""
    with LogReader.open(folder) as reader:
        runs = [run.id for run in take_tree(reader, row.id).runs]
        sent = asyncio.run(send_past(reader, runs, environment(), content=content))
    if sent.failure:
        raise StateError(
            f"The trace could not be sent to {sent.endpoint}: {sent.failure}.",
            remedy="Start the collector, or name another one with OTEL_EXPORTER_OTLP_ENDPOINT.",
        )
    return sent, len(runs)


def compare_recordings(left: str, right: str, cwd: Path) -> Comparison:
    """Compare two recordings. Each is a cassette file, or a run by its id, a prefix of it, or `@name`."""
    return compare(_recording(left, cwd), _recording(right, cwd))


def _recording(name: str, cwd: Path) -> Cassette:
    if name.endswith(SUFFIX) or Path(name).is_file():
        return read_cassette(Path(name).expanduser())
    return parse_cassette(_export(*locate_run(name, cwd)), name)


async def replay_cassette(path: Path, cwd: Path, tools: Literal["recorded", "live"]) -> ReplayReport:
    """Replay a cassette with its recorded model answers. The project is searched below `cwd`."""
    comparison, notes = await play_again(read_cassette(path), cwd, tools, environment())
    return ReplayReport(comparison, notes, comparison.same)


def compare_cassettes(left: Path, right: Path) -> Comparison:
    """Compare two cassette files."""
    return compare(read_cassette(left), read_cassette(right))


def recorded_moment(path: Path, seq: int) -> tuple[RecordedMoment, int, int]:
    """Return the state of a recorded run after event `seq`, the number of calls up to it, and the number of its last
    event. Raise UsageError for a number below the first."""
    cassette = read_cassette(path)
    events = [event for event in cassette.first.events if event.seq <= seq]
    if not events:
        raise UsageError("Events count from 1.", remedy="Name a number from 1 on: --to 1")
    past = replay([event.body for event in events])
    moment = RecordedMoment(events[-1].seq, past.messages, past.turn, past.usage)
    return moment, past.tool_uses, cassette.first.events[-1].seq
