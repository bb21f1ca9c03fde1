from __future__ import annotations

import argparse

from retinue.faces.cli.schedule.change import configure_change, perform

def execute_remove(args: argparse.Namespace) -> int:
    """Remove a job. Runs it has started go on.
    """
    return perform(args, lambda crew, job: crew.schedules.remove(job), "Removed")


configure_remove = configure_change
