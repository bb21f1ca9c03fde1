"""Switch a job off without removing it."""

from __future__ import annotations

import argparse

from retinue.faces.cli.schedule.change import configure, perform

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> int:
    return perform(args, lambda crew, job: crew.schedules.enable(job, False), "Switched off")
