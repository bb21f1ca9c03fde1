"""What the sandbox adds to the start of a shell: confined against plain, alternating.

usage: python bench/sandbox.py [REPETITIONS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.kernel import why_not
from retinue.guard.sandbox.policy import SandboxLimits, SandboxPolicy, bubblewrap_works, masks_work, namespaces_work

SHELL = ["/bin/sh", "-c", ":"]
GOAL = 20.0
MASKED = 300


def start(argv: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and processor time in milliseconds, everything it starts included."""
    spent, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * wall, 1000 * (after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime)


def compare(name: str, policy: SandboxPolicy, repetitions: int) -> None:
    box = Box(policy, "bench")
    try:
        began = time.perf_counter()
        confined, environment = box.wrap(SHELL, Path.cwd()), box.environment(os.environ)
        planned = 1000 * (time.perf_counter() - began)
        start(confined, environment)
        pairs = []
        for _ in range(repetitions):
            plain = start(SHELL, environment)
            # As in a run: this also gets the kernel ready for a control group.
            began = time.perf_counter()
            confined = box.wrap(SHELL, Path.cwd())
            wrapped = 1000 * (time.perf_counter() - began)
            wall, cpu = start(confined, environment)
            pairs.append((plain, (wall + wrapped, cpu)))
    finally:
        box.close()
    wall = [ours[0] - plain[0] for plain, ours in pairs]
    cpu = [ours[1] - plain[1] for plain, ours in pairs]
    print(
        f"{name:<28} +{statistics.median(wall):5.1f} ms wall, +{statistics.median(cpu):5.1f} ms CPU "
        f"(best +{min(wall):.1f} / +{min(cpu):.1f}; goal: {GOAL:g}); plan once per run {planned:.1f} ms"
    )


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    if why_not() is not None:
        print(f"no sandbox here: {why_not()}")
        return
    narrow = SandboxPolicy(home=Path.home(), reach="system", shown=(Path.cwd(),))
    if namespaces_work():
        compare("namespaces and Landlock", replace(narrow, namespaces="must"), repetitions)
        limits = SandboxLimits(scratch_bytes=1024**3)
        compare("unasked, as in a run", replace(narrow, limits=limits), repetitions)
    compare("Landlock and seccomp alone", replace(narrow, namespaces="never"), repetitions)
    if bubblewrap_works():
        compare("through bubblewrap", replace(narrow, namespaces="bubblewrap"), repetitions)
    if masks_work():
        files = sorted(path for path in Path("src").rglob("*.py"))[:MASKED]
        one = SandboxPolicy(change="all", network="on", hidden=tuple(files[:1]))
        compare("free, 1 file hidden", one, repetitions)
        compare(f"free, {len(files)} files hidden", replace(one, hidden=tuple(files)), repetitions)


if __name__ == "__main__":
    main()
