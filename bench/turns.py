"""What one agent costs beside a bare-httpx loop that does the same exchanges in the same run.

    python bench/turns.py [--reps 5]

Whole processes are measured (user and system CPU), alternating, medians. `per turn` is the
difference between 50 turns and none, `per delta` between 2,000 streamed pieces a turn and one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from rig.process import Cost, line, measure, median_cpu
from rig.project import Project, retinue
from rig.server import SHARED, Server, require_rig

TURNS = 50
STREAMED_TURNS = 10
DELTAS = 2_000
WORKS = {
    "cold": "SCENARIO oneshot",
    "turns": f"SCENARIO loop T={TURNS}",
    "short": f"SCENARIO loop T={STREAMED_TURNS}",
    "streamed": f"SCENARIO loop T={STREAMED_TURNS} CHUNKS={DELTAS}",
}


def httpx(prompt: str) -> list[str]:
    return [sys.executable, str(SHARED / "drivers" / "base_loop.py"), "httpx", prompt]


CLIENTS: dict[str, Callable[[str], list[str]]] = {"httpx": httpx, "retinue": retinue}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    reps = parser.parse_args().reps
    require_rig()
    costs: dict[tuple[str, str], list[Cost]] = {}
    with Server() as server, Project() as project:
        environment = project.environment(server.url)
        for rep in range(reps + 1):
            for work, scenario in WORKS.items():
                for name, command in CLIENTS.items():
                    cost = measure(command(f"{scenario} DIR={project.files}"), environment, project.cwd)
                    if rep:  # the first round writes byte code and warms the disk
                        costs.setdefault((name, work), []).append(cost)
    report({key: median_cpu(found) for key, found in costs.items()}, reps)


def report(cpu: dict[tuple[str, str], float], reps: int) -> None:
    def figures(name: str) -> tuple[float, float, float]:
        cold, turns, short, streamed = (cpu[name, work] for work in WORKS)
        return cold, (turns - cold) / TURNS, (streamed - short) / ((STREAMED_TURNS + 1) * (DELTAS - 1))

    base, ours = figures("httpx"), figures("retinue")
    rows = (
        ("cold start to first request", 1e3, "ms", 1.6),
        ("per turn", 1e3, "ms", 1.5),
        ("per delta", 1e6, "µs", 2.0),
    )
    print(f"CPU, medians of {reps}, beside a bare-httpx loop")
    for (what, scale, unit, goal), mine, theirs in zip(rows, ours, base, strict=True):
        shown = f"{what}: {mine * scale:.1f} against {theirs * scale:.1f} {unit}"
        line(shown, f"{mine / theirs:.2f} x", f"{goal} x", mine <= goal * theirs)


if __name__ == "__main__":
    main()
