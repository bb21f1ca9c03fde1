"""Scheduled agents: list the jobs, and add, change, run and fire them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from retinue.app.text import plural
from retinue.capabilities.schedule import scheduler_of
from retinue.capabilities.schedule.scheduler import Fired, Scheduler
from retinue.capabilities.schedule.times import FORMS as FORMS
from retinue.capabilities.schedule.times import parse_schedule
from retinue.capabilities.schedule.times import zone_of as zone_of
from retinue.cluster import open_project
from retinue.core.delegation import LIVE_STATUSES
from retinue.core.outcome import SUCCESS
from retinue.errors import LaunchError, RetinueError, UnknownRunError
from retinue.log.query import LogReader
from retinue.log.schedules import ScheduledJob as ScheduledJob
from retinue.log.schedules import jobs
from retinue.log.schedules import slots as slots
from retinue.runs.supervisor import Supervisor
from retinue.settings.places import state_folder

JobChange = Literal["remove", "enable", "disable"]


class JobView(Struct, frozen=True, kw_only=True):
    """A scheduled agent. `next_run` and `last_run` are times in its zone, `next_at` and `last_at` the same as Unix
    seconds. `next_run` is None if the job will not run again."""

    id: str
    name: str
    agent: str
    prompt: str
    schedule: str
    type: str
    zone: str | None
    enabled: bool
    next_run: str | None
    next_at: float | None
    last_run: str | None
    last_at: float | None
    last_run_id: str | None
    last_status: str | None
    last_error: str | None
    runs: int
    skipped: int
    missed: str
    jitter_seconds: float
    session_id: str | None
    options: Mapping[str, Any]
    created_at: float


class JobList(Struct, frozen=True):
    """The jobs of a project, the next one first."""

    jobs: list[JobView]


class JobRun(Struct, frozen=True):
    """The result of a run that a job started."""

    run_id: str
    status: str
    result: str
    partial: bool


def list_jobs(reader: LogReader) -> JobList:
    """Return the jobs of a project."""
    return JobList([view_job(job, last_status(reader, job)) for job in jobs(reader)])


def list_jobs_in(cwd: Path) -> JobList:
    """Return the jobs of the project at `cwd`."""
    with LogReader.open(state_folder(cwd)) as reader:
        return list_jobs(reader)


def view_job(job: ScheduledJob, status: str | None = None) -> JobView:
    return JobView(
        id=job.id,
        name=job.name,
        agent=job.agent,
        prompt=job.prompt,
        schedule=job.text,
        type=job.kind,
        zone=job.zone or None,
        enabled=job.enabled,
        next_run=_moment(job.next_at, job.zone),
        next_at=job.next_at,
        last_run=_moment(job.last_at, job.zone),
        last_at=job.last_at,
        last_run_id=job.last_run,
        last_status=status,
        last_error=job.last_error,
        runs=job.runs,
        skipped=job.skipped,
        missed=job.missed,
        jitter_seconds=job.jitter,
        session_id=job.session_id,
        options=job.options,
        created_at=job.created_at,
    )


def _moment(at: float | None, zone: str) -> str | None:
    """Return a time such as `2027-03-01T09:00:00+01:00` in the zone of the job."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, zone_of(zone)).isoformat(timespec="seconds")


def when_problem(text: str, now: float) -> str:
    """Return why a text is no schedule; empty when it is one. What is accepted is said beside it."""
    try:
        parse_schedule(text, now)
    except RetinueError as error:
        return error.message
    return ""


def last_status(reader: LogReader, job: ScheduledJob) -> str | None:
    """Return how the newest run of a job stands; `error` when it could not be started."""
    if job.last_error:
        return "error"
    if job.last_run is None:
        return None
    try:
        row = reader.run(job.last_run)
    except UnknownRunError:
        return None
    if row.state != "ended":
        return row.state
    return "success" if row.ended in SUCCESS else "error"


def job_sign(job: ScheduledJob | JobView, status: str | None) -> tuple[str, str]:
    """Return the sign of a job and what it means, as a style: will fire or did its work, failed last, at work,
    switched off or never started."""
    # A job whose only time has passed is disabled, but nobody switched it off.
    if not job.enabled and job.next_at is not None:
        return "✗", "dim"
    if status in LIVE_STATUSES:
        return "⋯", "accent"
    if status == "error":
        return "!", "error"
    if job.next_at is None:
        return ("✓" if status == "success" else "✗"), "dim"
    return "✓", "success"


@asynccontextmanager
async def _opened(cwd: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor(open_project(cwd)) as supervisor:
        yield supervisor


async def add_job(cwd: Path, agent: str, task: str, when: str, **options: Any) -> JobView:
    """Add a job. `options` are those of `Scheduler.add`."""
    async with _opened(cwd) as supervisor:
        return view_job(await scheduler_of(supervisor).add(agent, task, when, **options))


async def change_job(cwd: Path, name: str, verb: JobChange) -> JobView:
    """Remove, enable or disable a job, found by its id, a prefix of it, or its name."""
    async with _opened(cwd) as supervisor:
        if verb == "remove":
            return view_job(await scheduler_of(supervisor).remove(name))
        return view_job(await scheduler_of(supervisor).enable(name, verb == "enable"))


async def run_job(cwd: Path, name: str) -> tuple[JobRun, int]:
    """Run a job now, in addition to its schedule. Return its result and the exit code. Raise LaunchError if it cannot
    be started."""
    async with _opened(cwd) as supervisor:
        fired = await scheduler_of(supervisor).run_now(name)
        if fired.run_id is None:
            raise LaunchError(fired.error or "The job could not be started.")
        outcome = await supervisor.members[fired.run_id].wait()
    return JobRun(fired.run_id, outcome.ended, outcome.text, outcome.partial), outcome.exit_code


async def fire_once(cwd: Path, report: Callable[[str], None]) -> bool:
    """Start the jobs that are due and wait for them. Return whether all could be started."""
    async with _opened(cwd) as supervisor:
        scheduler = _scheduler(supervisor, report)
        fired = await scheduler.tick()
        await supervisor.wait_all()
        return not any(job.error for job in fired)


async def fire_until(cwd: Path, ended: asyncio.Event, report: Callable[[str], None]) -> None:
    """Start jobs when they are due, until `ended` is set. Then stop the running ones, which can be resumed."""
    async with _opened(cwd) as supervisor:
        scheduler = _scheduler(supervisor, report)
        off = "" if supervisor.settings.scheduling_enabled else "; none runs: schedulingEnabled is off"
        report(f"{plural(len(scheduler.jobs()), 'job')}{off}; Ctrl-C ends")
        scheduler.begin()
        await ended.wait()
        report("ending; running runs are stopped and can be resumed")
        await scheduler.end()
        for node in list(supervisor.members.values()):
            if node.live:
                supervisor.stop(node, "The schedule daemon ended.", by="program")


def _scheduler(supervisor: Supervisor, report: Callable[[str], None]) -> Scheduler:
    # A separate scheduler, so that every job it starts is reported.
    supervisor.schedules = scheduler = Scheduler(supervisor, lambda fired: report(_fired_text(fired)))
    return scheduler


def _fired_text(fired: Fired) -> str:
    name = f"{fired.job.name} ({fired.job.id})"
    if fired.error is not None:
        return f"{name} could not be started: {fired.error}"
    if fired.run_id is None:
        why = "it is still at work" if fired.why == "overlap" else "nothing ran here at its time"
        return f"{name} was skipped: {why}"
    return f"{name} started as run {fired.run_id}"
