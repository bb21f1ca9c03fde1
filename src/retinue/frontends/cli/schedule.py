"""The commands of `retinue schedule`. A job is found by its id, a prefix of it, or its name."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from retinue.app.process import on_end
from retinue.app.schedules import (
    JobChange,
    JobView,
    add_job,
    change_job,
    fire_once,
    fire_until,
    job_sign,
    list_jobs_in,
    run_job,
)
from retinue.app.session_options import read_task
from retinue.app.text import clean_line, optional, relative
from retinue.frontends.cli.project import add_cwd, add_where, folder, say, write_json

_PROJECT_HELP = "the project (default: here)"


def configure_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", help="id, prefix of an id, or name")
    add_where(parser, _PROJECT_HELP)


def _change(args: argparse.Namespace, verb: JobChange, done: str) -> int:
    job = asyncio.run(change_job(folder(args.cwd), args.job, verb))
    if args.json:
        write_json(job)
    else:
        print(f"{done} {job.id}  {job.name}")
    return 0


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, _PROJECT_HELP)


def execute_list(args: argparse.Namespace) -> int:
    """List the jobs of this project with their next run and their last result.

    ✓ enabled or done    ! failed last    ⋯ running    ✗ disabled or never started
    """
    jobs = list_jobs_in(folder(args.cwd))
    if args.json:
        write_json(jobs)
        return 0
    if not jobs.jobs:
        print("No jobs. Add one: retinue schedule add Explore 'What changed since yesterday?' --when '0 0 9 * * *'")
        return 0
    for number, job in enumerate(jobs.jobs, 1):
        print(_line(number, job))
    if any(map(_is_due, jobs.jobs)):
        say("Jobs fire while the terminal app or `retinue schedule daemon` runs in this project.")
    return 0


def _is_due(job: JobView) -> bool:
    """Return whether it is due and has not been started yet."""
    return job.enabled and job.next_at is not None and job.next_at < time.time()


def _line(number: int, job: JobView) -> str:
    mark, _ = job_sign(job, job.last_status)
    name = f"{clean_line(job.name)}  [{clean_line(job.agent)}]  {clean_line(job.schedule)}"
    parts = [f"{number:>2} {mark} {job.id}  {name}"]
    if _is_due(job):
        parts.append(f"due {relative(job.next_at)}")
    elif job.enabled and job.next_at is not None:
        parts.append(f"next {relative(job.next_at)}")
    if job.last_at is not None:
        parts.append(f"last {relative(job.last_at)} ({job.last_status or 'unknown'})")
    parts.append(f"runs {job.runs}{optional(', {} skipped', job.skipped)}")
    if job.last_error:
        parts.append(clean_line(job.last_error))
    return " · ".join(parts)


def configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", help="which agent")
    parser.add_argument("task", help="the task: text, @file, or - for standard input")
    parser.add_argument("--when", required=True, metavar="WHEN", help="when, as above")
    parser.add_argument("--name", default="", help="what the job is called (default: agent and time)")
    parser.add_argument("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (default: this machine's)")
    parser.add_argument(
        "--missed",
        choices=["skip", "catch-up"],
        help="missed times: skip them, or catch up once",
    )
    parser.add_argument("--jitter", type=float, metavar="SECONDS", help="a random delay of up to this time")
    parser.add_argument("--model", metavar="M", help="model of its runs")
    parser.add_argument("--max-turns", type=int, metavar="N", help="turns of each run")
    add_where(parser, _PROJECT_HELP)


def execute_add(args: argparse.Namespace) -> int:
    """Run an agent at a time, once or repeatedly.

        retinue schedule add Explore "What changed since yesterday?" --when "0 0 9 * * 1-5"
        retinue schedule add reviewer @task.md --when 2h --name "look again"
        retinue schedule add verification "Run the slow tests" --when +30m --missed catch-up

    WHEN is a delay (+10m, +1h30m), an interval (5m, 2h), a time (2027-03-01T09:00, with or without
    a zone), or cron with 5 fields, or with 6 (seconds first). Jobs run while the terminal app or
    `retinue schedule daemon` runs in the project.
    """
    options = {}
    if args.model is not None:
        options["model"] = args.model
    if args.max_turns is not None:
        options["max_turns"] = args.max_turns
    job = asyncio.run(
        add_job(
            folder(args.cwd),
            args.agent,
            read_task(args.task),
            args.when,
            name=args.name,
            zone=args.tz,
            missed=args.missed,
            jitter=args.jitter,
            options=options,
        )
    )
    if args.json:
        write_json(job)
        return 0
    print(f"{job.id}  {job.name}: next {job.next_run or ''} ({relative(job.next_at)})")
    say("It fires while the terminal app or `retinue schedule daemon` runs in this project.")
    return 0


def execute_remove(args: argparse.Namespace) -> int:
    """Remove a job. Its running runs continue."""
    return _change(args, "remove", "Removed")


configure_remove = configure_change


def execute_enable(args: argparse.Namespace) -> int:
    """Enable a job again. Runs that were missed meanwhile are skipped."""
    return _change(args, "enable", "Switched on")


configure_enable = configure_change


def execute_disable(args: argparse.Namespace) -> int:
    """Disable a job without removing it."""
    return _change(args, "disable", "Switched off")


configure_disable = configure_change


def execute_run(args: argparse.Namespace) -> int:
    """Run a job now, in addition to its schedule, and print its answer."""
    run, exit_code = asyncio.run(run_job(folder(args.cwd), args.job))
    if args.json:
        write_json(run)
    else:
        print(run.result)
    return exit_code


configure_run = configure_change


def configure_daemon(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="start the jobs that are due, wait for them, and exit")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    add_cwd(parser, _PROJECT_HELP)


def execute_daemon(args: argparse.Namespace) -> int:
    """Run the jobs of a project without a terminal.

        retinue schedule daemon              until SIGTERM or Ctrl-C; reports its actions on standard error
        retinue schedule daemon --once       run due jobs, wait for them, and exit: for cron or systemd timers

    Any number of daemons and sessions may run at the same time: each run of a job is started by one
    of them.
    """
    return asyncio.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    def report(text: str) -> None:
        if not args.quiet:
            print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    cwd = folder(args.cwd)
    if args.once:
        return int(not await fire_once(cwd, report))
    ended = asyncio.Event()
    with on_end(ended.set):
        await fire_until(cwd, ended, report)
    return 0
