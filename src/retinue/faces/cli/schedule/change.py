"""What `remove`, `enable`, `disable` and `run` share: one job, found by id, beginning of an id, or name."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable

from retinue.faces.cli.schedule.common import add_place, data, opened
from retinue.log.schedules import Job
from retinue.runs.crew import Supervisor

Change = Callable[[Supervisor, str], Awaitable[Job]]


def configure_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", help="id, beginning of an id, or name")
    add_place(parser)


def perform(args: argparse.Namespace, change: Change, done: str) -> int:
    async def work() -> Job:
        async with opened(args) as crew:
            return await change(crew, args.job)

    job = asyncio.run(work())
    if args.json:
        print(json.dumps(data(job, None), ensure_ascii=False, indent=2))
    else:
        print(f"{done} {job.id}  {job.name}")
    return 0
