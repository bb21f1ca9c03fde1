"""Which launcher carries out plans here: one in machine code if it can be started, else one in
Python that does the same, ten milliseconds slower."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from retinue.guard.sandbox.steps import FAILED

INSIDE = Path(__file__).with_name("inside")


@cache
def launcher() -> tuple[str, ...]:
    """The words before a plan."""
    native = INSIDE / f"launch-{os.uname().machine}"
    return (str(native),) if _starts(native) else in_python("retinue_launcher")


def in_python(module: str) -> tuple[str, ...]:
    start = f"import sys;sys.path.append({str(INSIDE)!r});import {module}"
    return (sys.executable, "-I", "-S", "-c", start)


def _starts(program: Path) -> bool:
    """Without a plan it says so. Where that is forbidden, or the file lost its mode on the way, it does not."""
    try:
        return subprocess.run([program], capture_output=True, timeout=20, check=False).returncode == FAILED  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return False
