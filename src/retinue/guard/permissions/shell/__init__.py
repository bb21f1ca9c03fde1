"""A command line taken apart: every program it would start, every file it would open."""

from retinue.guard.permissions.shell.script import analyse
from retinue.guard.permissions.shell.step import Script, Step

__all__ = ["Script", "Step", "analyse"]
