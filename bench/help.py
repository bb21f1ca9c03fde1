"""What a person waits for before anything is asked of a model: --help, a Tab, the import of the library.

    retinue --help       CPU against `python -c "import argparse, json"`, alternating; goal: at most 1.5 times
    a Tab                CPU of completing a command, an option, an agent, a model and a run; goal: at most 80 ms
    import retinue       CPU above that of an empty program; goal: at most 5 ms

usage: python bench/help.py [REPETITIONS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

BASE = [sys.executable, "-c", "import argparse, json"]
EMPTY = [sys.executable, "-c", "pass"]
IMPORT = [sys.executable, "-c", "import retinue"]
PROGRAM = [sys.executable, "-m", "retinue"]
TABS = {
    "a command": ["ru"],
    "an option": ["run", "--mo"],
    "an agent": ["run", "Exp"],
    "a model": ["run", "--model", ""],
    "a run": ["runs", "show", ""],
}


def cpu_seconds(argv: list[str], environment: dict[str, str] | None = None) -> float:
    """User and system time of one whole process."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} failed with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def medians(repetitions: int, *programs: list[str], environment: dict[str, str] | None = None) -> list[float]:
    """Return the median of each in milliseconds; they take turns, so that all see the same load."""
    times: list[list[float]] = [[] for _ in programs]
    for program in programs:
        cpu_seconds(program, environment)  # byte code and caches are written once, as for any installed program
    for _ in range(repetitions):
        for place, program in enumerate(programs):
            times[place].append(cpu_seconds(program, environment))
    return [1000 * statistics.median(each) for each in times]


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    base, ours = medians(repetitions, BASE, [*PROGRAM, "--help"])
    print(f"import argparse, json   {base:6.1f} ms CPU (median of {repetitions})")
    print(f"retinue --help          {ours:6.1f} ms CPU")
    print(f"ratio                   {ours / base:6.2f}   (goal: at most 1.5)")
    empty, imported = medians(repetitions, EMPTY, IMPORT)
    print(
        f"import retinue          {max(imported - empty, 0):6.1f} ms CPU more than an empty program (goal: at most 5)"
    )
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "RETINUE_HOME": home}
        programs = [[*PROGRAM, "completion", "--answer", *words] for words in TABS.values()]
        for name, found in zip(TABS, medians(repetitions, *programs, environment=environment), strict=True):
            print(f"Tab for {name:<15} {found:6.1f} ms CPU (goal: at most 80)")


if __name__ == "__main__":
    main()
