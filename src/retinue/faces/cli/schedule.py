"""The commands of `retinue schedule`. A job is found by id, beginning of an id, or name."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from retinue.capabilities.schedule.scheduler import Fired, Scheduler
from retinue.capabilities.schedule.times import zone_of
from retinue.core.delegation import LIVE_STATUSES
from retinue.core.outcome import SUCCESS
from retinue.engine import open_project
from retinue.errors import LaunchError, UnknownRunError
from retinue.faces.cli.project import add_cwd, add_where, folder, read_task, say, write_json
from retinue.faces.text import clean_line, optional, plural, relative
from retinue.log.database import backend_of
from retinue.log.schedules import ScheduledJob
from retinue.runs.supervisor import Supervisor
from retinue.settings.places import state_folder

_HERE = "the project (default: here)"


@asynccontextmanager
async def opened(args: argparse.Namespace) -> AsyncIterator[Supervisor]:
    """Open the project's supervisor: jobs are read, written and fired through it."""
    async with Supervisor(open_project(folder(args.cwd))) as supervisor:
        yield supervisor


def moment(at: float | None, zone: str = "") -> str:
    """Return `2027-03-01T09:00:00+01:00`, by the clock of the job."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, zone_of(zone)).isoformat(timespec="seconds")


def data(job: ScheduledJob, last_status: str | None) -> dict[str, Any]:
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


def last_status(supervisor: Supervisor, job: ScheduledJob) -> str | None:
    """Return how the newest run of a job stands; `error` when it could not be started."""
    if job.last_error:
        return "error"
    if job.last_run is None:
        return None
    try:
        row = supervisor.project.log.reader.run(job.last_run)
    except UnknownRunError:
        return None
    if row.state != "ended":
        return row.state
    return "success" if row.ended in SUCCESS else "error"


def sign(job: ScheduledJob, status: str | None) -> tuple[str, str]:
    """Return the sign of a job and what it means, as a style: will fire or did its work, failed last, at work,
    switched off or never started."""
    if not job.enabled:
        return "✗", "dim"
    if status in LIVE_STATUSES:
        return "⋯", "accent"
    if status == "error":
        return "!", "error"
    if job.next_at is None:
        return ("✓" if status == "success" else "✗"), "dim"
    return "✓", "success"


Change = Callable[[Supervisor, str], Awaitable[ScheduledJob]]


def configure_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", help="id, beginning of an id, or name")
    add_where(parser, _HERE)


def perform(args: argparse.Namespace, change: Change, done: str) -> int:
    async def work() -> ScheduledJob:
        async with opened(args) as supervisor:
            return await change(supervisor, args.job)

    job = asyncio.run(work())
    if args.json:
        write_json(data(job, None))
    else:
        print(f"{done} {job.id}  {job.name}")
    return 0


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, _HERE)


def execute_list(args: argparse.Namespace) -> int:
    """Jobs of this project: when each is due next, and how it went last.

    ✓ will fire or is done    ! failed last    ⋯ at work    ✗ switched off or never started
    """
    return asyncio.run(_list(args))


async def _list(args: argparse.Namespace) -> int:
    found: list[tuple[ScheduledJob, str | None]] = []
    if backend_of(state_folder(folder(args.cwd))).exists():
        # Looking makes nothing.
        async with opened(args) as supervisor:
            found = [(job, last_status(supervisor, job)) for job in supervisor.schedules.jobs()]
    if args.json:
        write_json({"jobs": [data(job, status) for job, status in found]})
        return 0
    if not found:
        print("No jobs. Add one: retinue schedule add Explore 'What changed since yesterday?' --when '0 0 9 * * *'")
        return 0
    for number, (job, status) in enumerate(found, 1):
        print(_line(number, job, status))
    if any(_is_due(job) for job, _ in found):
        say("Jobs fire while the terminal app or `retinue schedule daemon` runs in this project.")
    return 0


def _is_due(job: ScheduledJob) -> bool:
    """Return whether its time has come and nothing has fired it yet."""
    return job.enabled and job.next_at is not None and job.next_at < time.time()


def _line(number: int, job: ScheduledJob, status: str | None) -> str:
    mark, _ = sign(job, status)
    name = f"{clean_line(job.name)}  [{clean_line(job.agent)}]  {clean_line(job.text)}"
    parts = [f"{number:>2} {mark} {job.id}  {name}"]
    if _is_due(job):
        parts.append(f"due {relative(job.next_at)}")
    elif job.enabled and job.next_at is not None:
        parts.append(f"next {relative(job.next_at)}")
    if job.last_at is not None:
        parts.append(f"last {relative(job.last_at)} ({status or 'unknown'})")
    parts.append(f"runs {job.runs}{optional(', {} passed over', job.skipped)}")
    if job.last_error:
        parts.append(clean_line(job.last_error))
    return " · ".join(parts)


def configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", help="which agent")
    parser.add_argument("task", help="what it is to do: words, @file, or - for standard input")
    parser.add_argument("--when", required=True, metavar="WHEN", help="when, as above")
    parser.add_argument("--name", default="", help="what the job is called (default: agent and time)")
    parser.add_argument("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (default: this machine's)")
    parser.add_argument(
        "--missed",
        choices=["skip", "catch-up"],
        help="times at which nothing ran here: passed over, or made up for once",
    )
    parser.add_argument("--jitter", type=float, metavar="SECONDS", help="start up to this much later")
    parser.add_argument("--model", metavar="M", help="model of its runs")
    parser.add_argument("--max-turns", type=int, metavar="N", help="turns of each run")
    add_where(parser, _HERE)


def execute_add(args: argparse.Namespace) -> int:
    """Start an agent at a time, once or again and again.

        retinue schedule add Explore "What changed since yesterday?" --when "0 0 9 * * 1-5"
        retinue schedule add reviewer @task.md --when 2h --name "look again"
        retinue schedule add verification "Run the slow tests" --when +30m --missed catch-up

    WHEN: a delay (+10m, +1h30m), an interval (5m, 2h), a time (2027-03-01T09:00, with or without a zone), or cron
    with 5 fields, or with 6 (seconds first). It fires while the terminal app or `retinue schedule daemon` runs in
    the project.
    """
    return asyncio.run(_add(args, read_task(args.task)))


async def _add(args: argparse.Namespace, task: str) -> int:
    options = {}
    if args.model is not None:
        options["model"] = args.model
    if args.max_turns is not None:
        options["max_turns"] = args.max_turns
    async with opened(args) as supervisor:
        job = await supervisor.schedules.add(
            args.agent,
            task,
            args.when,
            name=args.name,
            zone=args.tz,
            missed=args.missed,
            jitter=args.jitter,
            options=options,
        )
    if args.json:
        write_json(data(job, None))
        return 0
    print(f"{job.id}  {job.name}: next {moment(job.next_at, job.zone)} ({relative(job.next_at)})")
    say("It fires while the terminal app or `retinue schedule daemon` runs in this project.")
    return 0


def execute_remove(args: argparse.Namespace) -> int:
    """Remove a job. Runs it has started go on."""
    return perform(args, lambda supervisor, job: supervisor.schedules.remove(job), "Removed")


configure_remove = configure_change


def execute_enable(args: argparse.Namespace) -> int:
    """Switch a job on again. What was due meanwhile is passed over."""
    return perform(args, lambda supervisor, job: supervisor.schedules.enable(job, True), "Switched on")


configure_enable = configure_change


def execute_disable(args: argparse.Namespace) -> int:
    """Switch a job off without removing it."""
    return perform(args, lambda supervisor, job: supervisor.schedules.enable(job, False), "Switched off")


configure_disable = configure_change


def execute_run(args: argparse.Namespace) -> int:
    """Run a job now, besides its times, and print its answer."""
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    async with opened(args) as supervisor:
        fired = await supervisor.schedules.run_now(args.job)
        if fired.run_id is None:
            raise LaunchError(fired.error or "The job could not be started.")
        outcome = await supervisor.members[fired.run_id].handle.wait()
    if args.json:
        about = {"run_id": fired.run_id, "status": outcome.ended}
        write_json({**about, "result": outcome.text, "partial": outcome.partial})
    else:
        print(outcome.text)
    return outcome.exit_code


configure_run = configure_change


def configure_daemon(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="one look, then wait for what it started")
    parser.add_argument("--quiet", action="store_true", help="say nothing")
    add_cwd(parser, _HERE)


def execute_daemon(args: argparse.Namespace) -> int:
    """Keep firing the jobs of a project without a terminal.

        retinue schedule daemon              until SIGTERM or Ctrl-C; says what it does on standard error
        retinue schedule daemon --once       fire what is due now, wait for it, and end: for cron or systemd timers

    Any number of daemons and sessions may run side by side: each time of a job is fired by one of them.
    """
    return asyncio.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    def say(text: str) -> None:
        if not args.quiet:
            print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    async with opened(args) as supervisor:
        # A scheduler of our own, so that everything it fires is said on standard error.
        supervisor.schedules = scheduler = Scheduler(supervisor, lambda fired: say(_words(fired)))
        if args.once:
            fired = await scheduler.tick()
            await supervisor.wait_all()
            return int(any(each.error for each in fired))
        off = "" if supervisor.settings.scheduling_enabled else "; none runs: schedulingEnabled is off"
        say(f"{plural(len(scheduler.jobs()), 'job')}{off}; Ctrl-C ends")
        scheduler.begin()
        await _signal()
        say("ending; what runs is stopped and can be resumed")
        await scheduler.end()
        _stop(supervisor)
    return 0


async def _signal() -> None:
    """Wait until someone wants the program to end."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()


def _stop(supervisor: Supervisor) -> None:
    for node in list(supervisor.members.values()):
        if node.live:
            supervisor.stop(node, "The schedule daemon ended.", by="program")


def _words(fired: Fired) -> str:
    name = f"{fired.job.name} ({fired.job.id})"
    if fired.error is not None:
        return f"{name} could not be started: {fired.error}"
    if fired.run_id is None:
        why = "it is still at work" if fired.why == "overlap" else "nothing ran here at its time"
        return f"{name} was passed over: {why}"
    return f"{name} started as run {fired.run_id}"
