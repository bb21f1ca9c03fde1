from __future__ import annotations

import argparse
import asyncio
import json

from retinue.faces.cli.cost import clean
from retinue.faces.cli.schedule.common import add_place, data, last_status, opened, relative
from retinue.faces.cli.task import folder
from retinue.log.database import log_file
from retinue.log.schedules import Job
from retinue.settings.places import state_folder


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_place(parser)


def execute_list(args: argparse.Namespace) -> int:
    """Jobs of this project: when each is due next, and how it went last.

    ✓ will fire    ! failed last    ⋯ at work    ✗ switched off or over
    """
    return asyncio.run(_list(args))


async def _list(args: argparse.Namespace) -> int:
    found: list[tuple[Job, str | None]] = []
    if log_file(state_folder(folder(args.cwd))).exists():  # looking makes nothing
        async with opened(args) as crew:
            found = [(job, last_status(crew, job)) for job in crew.schedules.jobs()]
    if args.json:
        print(json.dumps({"jobs": [data(job, status) for job, status in found]}, ensure_ascii=False, indent=2))
        return 0
    if not found:
        print("No jobs. Add one: retinue schedule add Explore 'What changed since yesterday?' --when '0 0 9 * * *'")
        return 0
    for number, (job, status) in enumerate(found, 1):
        print(_line(number, job, status))
    return 0


def _line(number: int, job: Job, status: str | None) -> str:
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
