from __future__ import annotations

import argparse

from retinue.faces.cli.schedule.change import configure_change, perform

def execute_enable(args: argparse.Namespace) -> int:
    """Switch a job on again. What was due meanwhile is passed over.
    """
    return perform(args, lambda crew, job: crew.schedules.enable(job, True), "Switched on")


configure_enable = configure_change
