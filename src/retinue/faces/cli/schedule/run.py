from __future__ import annotations

import argparse
import asyncio
import json

from retinue.errors import LaunchError
from retinue.faces.cli.schedule.change import configure_change
from retinue.faces.cli.schedule.common import opened

def execute_run(args: argparse.Namespace) -> int:
    """Run a job now, besides its times, and print its answer.
    """
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    async with opened(args) as crew:
        fired = await crew.schedules.run_now(args.job)
        if fired.run_id is None:
            raise LaunchError(fired.error or "The job could not be started.")
        outcome = await crew.members[fired.run_id].handle.wait()
    if args.json:
        document = {"run_id": fired.run_id, "status": outcome.ended, "result": outcome.text, "partial": outcome.partial}
        print(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        print(outcome.text)
    return outcome.exit_code


configure_run = configure_change
