"""CPU of `retinue --help` against `python -c "import argparse, json"`, alternating, best of many.

usage: python bench/help.py [REPETITIONS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

BASE = [sys.executable, "-c", "import argparse, json"]
OURS = [sys.executable, "-m", "retinue", "--help"]


def cpu_seconds(argv: list[str]) -> float:
    """User and system time of one whole process."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} failed with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    cpu_seconds(OURS)  # byte code is written once, as for any installed program
    base, ours = [], []
    for _ in range(repetitions):
        base.append(cpu_seconds(BASE))
        ours.append(cpu_seconds(OURS))
    ratio = statistics.median(ours) / statistics.median(base)
    print(f"import argparse, json   {1000 * statistics.median(base):6.1f} ms CPU (median of {repetitions})")
    print(f"retinue --help          {1000 * statistics.median(ours):6.1f} ms CPU")
    print(f"ratio                   {ratio:6.2f}   (goal: under 1.5)")


if __name__ == "__main__":
    main()
