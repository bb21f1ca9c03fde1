from __future__ import annotations

import argparse
import asyncio
import json
import sys

from retinue.faces.cli.schedule.common import add_place, data, moment, opened, relative
from retinue.faces.cli.task import read_task


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
    async with opened(args) as crew:
        job = await crew.schedules.add(
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
