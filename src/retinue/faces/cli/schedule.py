"""The commands of `retinue schedule`. A job is found by id, beginning of an id, or name."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from retinue.capabilities.schedule.scheduler import Fired, Scheduler
from retinue.capabilities.schedule.times import zone_of
from retinue.core.format import format_wait
from retinue.errors import LaunchError
from retinue.faces.cli.cost import clean
from retinue.faces.cli.project import folder, read_task
from retinue.log.database import log_file
from retinue.log.schedules import ScheduledJob
from retinue.runs.project import Project
from retinue.runs.supervisor import Supervisor
from retinue.settings.places import state_folder


def add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the project (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


@asynccontextmanager
async def opened(args: argparse.Namespace) -> AsyncIterator[Supervisor]:
    """The project's supervisor: jobs are read, written and fired through it."""
    async with Supervisor(Project(folder(args.cwd))) as supervisor:
        yield supervisor


def moment(at: float | None, zone: str = "") -> str:
    """`2027-03-01T09:00:00+01:00`, by the clock of the job."""
    return datetime.fromtimestamp(at, zone_of(zone)).isoformat(timespec="seconds") if at is not None else ""


def relative(at: float | None, now: float | None = None) -> str:
    """`in 4m 30s`, `12s ago`."""
    if at is None:
        return ""
    away = at - (time.time() if now is None else now)
    return f"in {format_wait(away)}" if away >= 0 else f"{format_wait(-away)} ago"


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
    """How the newest run of a job stands; `error` when it could not be started."""
    if job.last_error:
        return "error"
    if job.last_run is None:
        return None
    from retinue.errors import UnknownRunError

    try:
        row = supervisor.project.log.reader.run(job.last_run)
    except UnknownRunError:
        return None
    if row.state != "ended":
        return row.state
    return "success" if row.ended in ("completed", "steered") else "error"


Change = Callable[[Supervisor, str], Awaitable[ScheduledJob]]


def configure_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", help="id, beginning of an id, or name")
    add_place(parser)


def perform(args: argparse.Namespace, change: Change, done: str) -> int:
    async def work() -> ScheduledJob:
        async with opened(args) as supervisor:
            return await change(supervisor, args.job)

    job = asyncio.run(work())
    if args.json:
        print(json.dumps(data(job, None), ensure_ascii=False, indent=2))
    else:
        print(f"{done} {job.id}  {job.name}")
    return 0


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_place(parser)


def execute_list(args: argparse.Namespace) -> int:
    """Jobs of this project: when each is due next, and how it went last.

    ✓ will fire    ! failed last    ⋯ at work    ✗ switched off or over
    """
    return asyncio.run(_list(args))


async def _list(args: argparse.Namespace) -> int:
    found: list[tuple[ScheduledJob, str | None]] = []
    if log_file(state_folder(folder(args.cwd))).exists():  # looking makes nothing
        async with opened(args) as supervisor:
            found = [(job, last_status(supervisor, job)) for job in supervisor.schedules.jobs()]
    if args.json:
        print(json.dumps({"jobs": [data(job, status) for job, status in found]}, ensure_ascii=False, indent=2))
        return 0
    if not found:
        print("No jobs. Add one: retinue schedule add Explore 'What changed since yesterday?' --when '0 0 9 * * *'")
        return 0
    for number, (job, status) in enumerate(found, 1):
        print(_line(number, job, status))
    return 0


def _line(number: int, job: ScheduledJob, status: str | None) -> str:
    at_work = status in ("running", "queued", "waiting")
    icon = "✗" if not job.enabled else "⋯" if at_work else "!" if status == "error" else "✓"
    parts = [f"{number:>2} {icon} {job.id}  {clean(job.name)}  [{clean(job.agent)}]  {clean(job.text)}"]
    if job.enabled and job.next_at is not None:
        parts.append(f"next {relative(job.next_at)}")
    if job.last_at is not None:
        parts.append(f"last {relative(job.last_at)} ({status or 'unknown'})")
    parts.append(f"runs {job.runs}" + (f", {job.skipped} passed over" if job.skipped else ""))
    if job.last_error:
        parts.append(clean(job.last_error))
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
    add_place(parser)


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
    options = {"model": args.model, "max_turns": args.max_turns}
    async with opened(args) as supervisor:
        job = await supervisor.schedules.add(
            args.agent,
            task,
            args.when,
            name=args.name,
            zone=args.tz,
            missed=args.missed,
            jitter=args.jitter,
            options={name: value for name, value in options.items() if value is not None},
        )
    if args.json:
        print(json.dumps(data(job, None), ensure_ascii=False, indent=2))
        return 0
    print(f"{job.id}  {job.name}: next {moment(job.next_at, job.zone)} ({relative(job.next_at)})")
    print("It fires while the terminal app or `retinue schedule daemon` runs in this project.", file=sys.stderr)
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
        document = {"run_id": fired.run_id, "status": outcome.ended, "result": outcome.text, "partial": outcome.partial}
        print(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        print(outcome.text)
    return outcome.exit_code


configure_run = configure_change


def configure_daemon(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="one look, then wait for what it started")
    parser.add_argument("--quiet", action="store_true", help="say nothing")
    parser.add_argument("--cwd", metavar="DIR", help="the project (default: here)")


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
        supervisor.schedules = scheduler = Scheduler(supervisor, lambda fired: say(_words(fired)))
        if args.once:
            fired = await scheduler.tick()
            await supervisor.wait_all()
            return 1 if any(each.error for each in fired) else 0
        say(f"{len(scheduler.jobs())} jobs; Ctrl-C ends")
        scheduler.begin()
        await _signal()
        say("ending; what runs is stopped and can be resumed")
        await scheduler.end()
        _stop(supervisor)
    return 0


async def _signal() -> None:
    """Until someone wants the program to end."""
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
