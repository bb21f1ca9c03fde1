from __future__ import annotations

import argparse

from retinue.faces.cli.schedule.change import configure_change, perform

def execute_disable(args: argparse.Namespace) -> int:
    """Switch a job off without removing it.
    """
    return perform(args, lambda crew, job: crew.schedules.enable(job, False), "Switched off")


configure_disable = configure_change
