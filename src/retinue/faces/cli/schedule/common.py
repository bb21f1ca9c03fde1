"""What the schedule commands share: opening the project, and how a job is shown."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from retinue.capabilities.schedule.times import zone_of
from retinue.core.format import format_wait
from retinue.faces.cli.task import folder
from retinue.log.schedules import Job
from retinue.runs.crew import Supervisor
from retinue.runs.world import World


def add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the project (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


@asynccontextmanager
async def opened(args: argparse.Namespace) -> AsyncIterator[Supervisor]:
    """The project's supervisor: jobs are read, written and fired through it."""
    async with Supervisor(World(folder(args.cwd))) as crew:
        yield crew


def moment(at: float | None, zone: str = "") -> str:
    """`2027-03-01T09:00:00+01:00`, by the clock of the job."""
    return datetime.fromtimestamp(at, zone_of(zone)).isoformat(timespec="seconds") if at is not None else ""


def relative(at: float | None, now: float | None = None) -> str:
    """`in 4m 30s`, `12s ago`."""
    if at is None:
        return ""
    away = at - (time.time() if now is None else now)
    return f"in {format_wait(away)}" if away >= 0 else f"{format_wait(-away)} ago"


def data(job: Job, last_status: str | None) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "agent": job.agent,
        "prompt": job.prompt,
        "schedule": job.text,
        "type": job.kind,
        "zone": job.zone or None,
        "enabled": job.enabled,
        "next_run": moment(job.next_at, job.zone) or None,
        "last_run": moment(job.last_at, job.zone) or None,
        "last_run_id": job.last_run,
        "last_status": last_status,
        "last_error": job.last_error,
        "runs": job.runs,
        "skipped": job.skipped,
        "missed": job.missed,
        "jitter_seconds": job.jitter,
        "session_id": job.session_id,
        "options": dict(job.options),
        "created_at": job.created_at,
    }


def last_status(crew: Supervisor, job: Job) -> str | None:
    """How the newest run of a job stands; `error` when it could not be started."""
    if job.last_error:
        return "error"
    if job.last_run is None:
        return None
    from retinue.errors import UnknownRunError

    try:
        row = crew.world.log.reader.run(job.last_run)
    except UnknownRunError:
        return None
    if row.state != "ended":
        return row.state
    return "success" if row.ended in ("completed", "steered") else "error"
