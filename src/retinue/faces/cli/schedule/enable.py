"""Switch a job on again. What was due meanwhile is passed over."""

from __future__ import annotations

import argparse

from retinue.faces.cli.schedule.change import configure, perform

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> int:
    return perform(args, lambda crew, job: crew.schedules.enable(job, True), "Switched on")
