from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time

from retinue.capabilities.schedule.scheduler import Fired, Scheduler
from retinue.faces.cli.schedule.common import opened
from retinue.runs.crew import Supervisor


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

    async with opened(args) as crew:
        crew.schedules = scheduler = Scheduler(crew, lambda fired: say(_words(fired)))
        if args.once:
            fired = await scheduler.tick()
            await crew.wait_all()
            return 1 if any(each.error for each in fired) else 0
        say(f"{len(scheduler.jobs())} jobs; Ctrl-C ends")
        scheduler.begin()
        await _signal()
        say("ending; what runs is stopped and can be resumed")
        await scheduler.end()
        _stop(crew)
    return 0


async def _signal() -> None:
    """Until someone wants the program to end."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()


def _stop(crew: Supervisor) -> None:
    for member in list(crew.members.values()):
        if member.live:
            crew.stop(member, "The schedule daemon ended.", by="program")


def _words(fired: Fired) -> str:
    name = f"{fired.job.name} ({fired.job.id})"
    if fired.error is not None:
        return f"{name} could not be started: {fired.error}"
    if fired.run_id is None:
        why = "it is still at work" if fired.why == "overlap" else "nothing ran here at its time"
        return f"{name} was passed over: {why}"
    return f"{name} started as run {fired.run_id}"
