"""Jobs of the project in its log: what is to run when, and which process fired which slot.

A slot is claimed in one transaction that also moves the job to its next slot and writes the slot
down, so of several processes exactly one fires it, and a slot of the past is never fired again,
whatever clocks do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from retinue.core.foreign import (
    MAX_JSON_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    Count,
    RunId,
    Text,
    decode_json,
    decode_row,
    is_valid,
)
from retinue.core.programs import Owner
from retinue.errors import UnknownJobError, UsageError
from retinue.log.query import LogReader, check_unique, readable

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection

Kind = Literal["once", "interval", "cron"]
Missed = Literal["skip", "catch-up"]
Result = Literal["fired", "missed", "overlap", "error"]


class ScheduledJob(Struct, frozen=True, kw_only=True):
    """`kind`, `text`, `at`, `seconds`, `expression` and `zone` are the schedule. `options` go
    with the call (model, thinking, max_turns, isolated, isolation). `next_at` is None when
    nothing is due any more. `runs` counts starts, `skipped` slots that were passed over."""

    id: RunId
    name: Text
    agent: Text
    prompt: Text
    kind: Kind
    text: Text
    at: float = 0.0
    seconds: float = 0.0
    expression: Text = ""
    zone: Text = ""
    options: Mapping[str, Any] = {}
    session_id: RunId | None = None
    missed: Missed = "skip"
    jitter: float = 0.0
    enabled: bool = True
    created_at: float = 0.0
    anchor: float = 0.0
    next_at: float | None = None
    last_at: float | None = None
    last_run: RunId | None = None
    last_error: Text | None = None
    runs: Count = 0
    skipped: Count = 0


_COLUMNS = ScheduledJob.__struct_fields__
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM schedules"  # noqa: S608


class Orphan(Struct, frozen=True):
    """A slot that was claimed and whose run never began."""

    job: ScheduledJob
    slot: float
    run_id: str
    owner: str


# Inside `Log.transact`, or a transaction of another connection


def add(connection: LogConnection, job: ScheduledJob, most: int) -> ScheduledJob:
    """Raise UsageError for a name that is taken, and when there are too many jobs."""
    if connection.execute("SELECT 1 FROM schedules WHERE name=?", (job.name,)).fetchone():
        raise UsageError(f'There is a job named "{job.name}" already.', remedy="Choose another name, or remove it.")
    if connection.execute("SELECT count(*) FROM schedules WHERE enabled").fetchone()[0] >= most:
        raise UsageError(f"There are {most} jobs already, which is the most.", remedy="See: retinue schedule list")
    options = orjson.dumps(dict(job.options)).decode()
    if len(job.prompt) > MAX_TEXT_CHARACTERS or len(options) > MAX_JSON_CHARACTERS:
        raise UsageError(
            f"The task of a job has at most {MAX_TEXT_CHARACTERS:,} characters, its options {MAX_JSON_CHARACTERS:,}.",
            remedy="Put the text into a file of the project, and name the file in the task.",
        )
    connection.insert("schedules", _COLUMNS, [tuple({**asdict(job), "options": options}.values())])
    return job


def remove(connection: LogConnection, job_id: str) -> bool:
    connection.execute("DELETE FROM schedule_slots WHERE job_id=?", (job_id,))
    return connection.execute("DELETE FROM schedules WHERE id=?", (job_id,)).rowcount > 0


def enable(connection: LogConnection, job_id: str, enabled: bool, next_at: float | None) -> bool:
    """Switching on again goes on with `next_at`: what was due meanwhile is not made up for."""
    query = "UPDATE schedules SET enabled=?, next_at=? WHERE id=?"
    return connection.execute(query, (enabled, next_at, job_id)).rowcount > 0


def move(connection: LogConnection, job: ScheduledJob) -> None:
    """Let the next slot of a job come earlier than the table has it, as `job` says."""
    connection.execute(
        "UPDATE schedules SET next_at=?, anchor=?, at=? WHERE id=? AND next_at>? AND enabled",
        (job.next_at, job.anchor, job.at, job.id, job.next_at),
    )


def claim(
    connection: LogConnection,
    job: ScheduledJob,
    slot: float,
    next_at: float | None,
    result: Result,
    *,
    owner: str,
    now: float,
    run_id: str | None = None,
    passed: int = 0,
) -> bool:
    """Take the job from `job.next_at`, where the caller saw it, to `next_at`. True for the one
    process that does; `passed` slots were not fired. A job without a next slot is over. `run_id`
    is the run that is to start now: if it is never seen, its process died before it could."""
    moved = connection.execute(
        "UPDATE schedules SET next_at=?, enabled=?, skipped=skipped+?, last_at=CASE WHEN ? THEN ? ELSE last_at END, "
        "runs=runs+? WHERE id=? AND next_at IS ? AND enabled",
        (next_at, next_at is not None, passed, result == "fired", now, int(result == "fired"), job.id, job.next_at),
    )
    if moved.rowcount != 1:
        return False
    query = (
        "INSERT INTO schedule_slots (job_id, slot, at, owner, result, run_id) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING"
    )
    return connection.execute(query, (job.id, slot, now, owner, result, run_id)).rowcount == 1


def record(connection: LogConnection, job_id: str, slot: float, run_id: str | None, error: str | None) -> None:
    """What became of a slot that was claimed: the run it started, or why it could not."""
    connection.execute(
        "UPDATE schedules SET last_run=coalesce(?, last_run), last_error=? WHERE id=?", (run_id, error, job_id)
    )
    if error is not None:
        query = "UPDATE schedule_slots SET result='error' WHERE job_id=? AND slot=?"
        connection.execute(query, (job_id, slot))


def reclaim(connection: LogConnection, orphan: Orphan, owner: str, result: Result, now: float) -> bool:
    """Take over a slot whose process died before its run began. True for one process."""
    query = "UPDATE schedule_slots SET owner=?, at=?, result=? WHERE job_id=? AND slot=? AND owner=?"
    values = (owner, now, result, orphan.job.id, orphan.slot, orphan.owner)
    return connection.execute(query, values).rowcount == 1


# From anywhere


def jobs(reader: LogReader) -> list[ScheduledJob]:
    """All of the project, those that are due first first."""
    return readable(reader.select(f"{_SELECT} ORDER BY next_at IS NULL, next_at, created_at"), _read_job)


def due(reader: LogReader, now: float) -> list[ScheduledJob]:
    return readable(reader.select(f"{_SELECT} WHERE enabled AND next_at<=? ORDER BY next_at", (now,)), _read_job)


def find(reader: LogReader, wanted: str) -> ScheduledJob:
    """Return the job of that id or name, or the only one whose id begins so. Raise UnknownJobError, UsageError."""
    all_jobs = jobs(reader)
    matches = (
        [job for job in all_jobs if wanted == job.id]
        or [job for job in all_jobs if wanted == job.name]
        or [job for job in all_jobs if wanted and job.id.startswith(wanted)]
    )
    check_unique("jobs", wanted, [job.id for job in matches])
    if not matches:
        raise UnknownJobError(f"There is no job '{wanted}' here.", remedy="See: retinue schedule list")
    return matches[0]


def orphans(reader: LogReader, here: Owner) -> list[Orphan]:
    """Slots whose run was never seen because their process died first."""
    rows = reader.select(
        "SELECT job_id, slot, run_id, owner FROM schedule_slots AS slots WHERE result='fired' "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id=slots.run_id)"
    )
    if not rows:
        return []
    alive = {name for name, owner in reader.owners().items() if owner.alive(here)}
    jobs_by_id = {job.id: job for job in jobs(reader)}
    return [
        Orphan(jobs_by_id[job_id], slot, run_id, owner)
        for job_id, slot, run_id, owner in rows
        # A live owner may still be about to start the run.
        if job_id in jobs_by_id and owner not in alive and is_valid(run_id, RunId)
    ]


def slots(reader: LogReader, job_id: str, limit: int = 100) -> list[tuple[float, str, str | None]]:
    """The newest slots of a job: when, what became of it, which run."""
    query = "SELECT slot, result, run_id FROM schedule_slots WHERE job_id=? ORDER BY slot DESC LIMIT ?"
    return [(row[0], row[1], row[2]) for row in reader.select(query, (job_id, limit))]


def _read_job(row: Any) -> ScheduledJob:
    values = dict(zip(_COLUMNS, tuple(row), strict=True))
    values["options"] = decode_json(values["options"], dict[Text, Any], "The options of a job")
    # SQLite stores booleans as integers.
    values["enabled"] = bool(values["enabled"])
    return decode_row(values, ScheduledJob, "A job in the database")
