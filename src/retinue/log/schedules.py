"""The scheduled jobs of a project in its log, and the slots that processes have fired.

A slot is claimed in one transaction, which also moves the job to its next slot and records the slot. So exactly one of
several processes fires it, and a past slot is never fired again, even if clocks change.
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
    """`kind`, `text`, `at`, `seconds`, `expression` and `zone` are the schedule. `options` are those of the call
    (model, thinking, max_turns, isolated, isolation). `next_at` is None if no slot is left. `runs` is the number of
    started runs, `skipped` that of skipped slots."""

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
    """A slot that was claimed but whose run never began."""

    job: ScheduledJob
    slot: float
    run_id: str
    owner: str


# Inside `Log.transact`, or a transaction of another connection


def add(connection: LogConnection, job: ScheduledJob, max_jobs: int) -> ScheduledJob:
    """Store a new job. Raise UsageError for a duplicate name or too many jobs."""
    if connection.execute("SELECT 1 FROM schedules WHERE name=?", (job.name,)).fetchone():
        raise UsageError(f'There is a job named "{job.name}" already.', remedy="Choose another name, or remove it.")
    if connection.execute("SELECT count(*) FROM schedules WHERE enabled").fetchone()[0] >= max_jobs:
        raise UsageError(f"There are {max_jobs} jobs, which is the limit.", remedy="See: retinue schedule list")
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
    """Enable or disable a job. An enabled job continues with `next_at`, and slots before are not made up for."""
    query = "UPDATE schedules SET enabled=?, next_at=? WHERE id=?"
    return connection.execute(query, (enabled, next_at, job_id)).rowcount > 0


def move(connection: LogConnection, before: ScheduledJob, after: ScheduledJob) -> None:
    """Move the next slot of a job, unless another process has changed it."""
    connection.execute(
        "UPDATE schedules SET next_at=?, anchor=?, at=? WHERE id=? AND next_at=? AND enabled",
        (after.next_at, after.anchor, after.at, before.id, before.next_at),
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
    skipped: int = 0,
) -> bool:
    """Claim a slot: move the job from `job.next_at`, as the caller read it, to `next_at`. Return True in exactly one
    process. `skipped` is the number of slots that were not fired. A job without a next slot is over. `run_id` is the id
    of the run to start: if the log never has this run, the process died before its start."""
    moved = connection.execute(
        "UPDATE schedules SET next_at=?, enabled=?, skipped=skipped+?, last_at=CASE WHEN ? THEN ? ELSE last_at END, "
        "runs=runs+? WHERE id=? AND next_at IS ? AND enabled",
        (next_at, next_at is not None, skipped, result == "fired", now, int(result == "fired"), job.id, job.next_at),
    )
    if moved.rowcount != 1:
        return False
    query = (
        "INSERT INTO schedule_slots (job_id, slot, at, owner, result, run_id) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING"
    )
    return connection.execute(query, (job.id, slot, now, owner, result, run_id)).rowcount == 1


def record(connection: LogConnection, job_id: str, slot: float, run_id: str | None, error: str | None) -> None:
    """Record the result of a claimed slot: the run that it started, or an error."""
    connection.execute(
        "UPDATE schedules SET last_run=coalesce(?, last_run), last_error=? WHERE id=?", (run_id, error, job_id)
    )
    if error is not None:
        query = "UPDATE schedule_slots SET result='error' WHERE job_id=? AND slot=?"
        connection.execute(query, (job_id, slot))


def reclaim(connection: LogConnection, orphan: Orphan, owner: str, result: Result, now: float) -> bool:
    """Take over a slot whose process died before its run began. Return True in exactly one process."""
    query = "UPDATE schedule_slots SET owner=?, at=?, result=? WHERE job_id=? AND slot=? AND owner=?"
    values = (owner, now, result, orphan.job.id, orphan.slot, orphan.owner)
    return connection.execute(query, values).rowcount == 1


# From anywhere


def jobs(reader: LogReader) -> list[ScheduledJob]:
    """Return all jobs of the project, in the order of their next slots."""
    return readable(reader.select(f"{_SELECT} ORDER BY next_at IS NULL, next_at, created_at"), _read_job)


def due(reader: LogReader, now: float) -> list[ScheduledJob]:
    return readable(reader.select(f"{_SELECT} WHERE enabled AND next_at<=? ORDER BY next_at", (now,)), _read_job)


def find(reader: LogReader, id_or_name: str) -> ScheduledJob:
    """Return the job with that id or name, or the only job whose id begins so. Raise UnknownJobError or UsageError."""
    all_jobs = jobs(reader)
    matches = (
        [job for job in all_jobs if id_or_name == job.id]
        or [job for job in all_jobs if id_or_name == job.name]
        or [job for job in all_jobs if id_or_name and job.id.startswith(id_or_name)]
    )
    check_unique("jobs", id_or_name, [job.id for job in matches])
    if not matches:
        raise UnknownJobError(f"There is no job '{id_or_name}' here.", remedy="See: retinue schedule list")
    return matches[0]


def orphans(reader: LogReader, here: Owner) -> list[Orphan]:
    """Return the claimed slots of dead processes whose run is not in the log."""
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
        # A live owner may be about to start the run.
        if job_id in jobs_by_id and owner not in alive and is_valid(run_id, RunId)
    ]


def slots(reader: LogReader, job_id: str, limit: int = 100) -> list[tuple[float, str, str | None]]:
    """Return the newest slots of a job: time, result and run id."""
    query = "SELECT slot, result, run_id FROM schedule_slots WHERE job_id=? ORDER BY slot DESC LIMIT ?"
    return [(row[0], row[1], row[2]) for row in reader.select(query, (job_id, limit))]


def _read_job(row: Any) -> ScheduledJob:
    values = dict(zip(_COLUMNS, tuple(row), strict=True))
    values["options"] = decode_json(values["options"], dict[Text, Any], "The options of a job")
    # SQLite stores booleans as integers.
    values["enabled"] = bool(values["enabled"])
    return decode_row(values, ScheduledJob, "A job in the database")
