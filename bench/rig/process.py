"""Runs one program to its end and says what it cost."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU is user and system time of the whole process, threads included."""

    cpu: float
    wall: float
    peak_mb: float
    output: str


def measure(argv: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Cost:
    """Raises SystemExit with what the program said if it fails. Of its output the last megabyte is kept."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        assert process.stdout is not None
        output = b""
        while piece := process.stdout.read(_CHUNK):
            output = (output + piece)[-_CHUNK:]
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-2000:]
            raise SystemExit(f"{' '.join(argv[:4])} … failed with {process.returncode}\n{said}")
    unit = 1024 if sys.platform != "darwin" else 1024 * 1024
    return Cost(
        usage.ru_utime + usage.ru_stime,
        time.perf_counter() - begin,
        usage.ru_maxrss / unit,
        output.decode(errors="replace"),
    )


def median_cpu(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.cpu for cost in costs)


def line(what: str, value: str, goal: str, good: bool) -> None:
    """One figure beside its goal."""
    print(f"{what:<52} {value:>18}   goal {goal:<10} {'ok' if good else 'MISSED'}")
