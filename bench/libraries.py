"""The same agents with the same tool on the same server, written with Retinue and with pydantic-ai.

    python bench/libraries.py [--agents 100] [--turns 5] [--reps 3]

Each program is a whole process: so many agents, 20 at a time, that each read a file in every turn, over Anthropic's
wire format with streaming. CPU is user and system time; `start` is a program that runs one agent without a tool.
Retinue also records every event in its log and asks its permission gate about every call; pydantic-ai does neither.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from rig.process import Cost, measure
from rig.project import Project
from rig.server import Server, require_rig

RETINUE = """
import asyncio, sys
from retinue import Retinue

async def main(agents, turns, folder):
    tasks = [f"SCENARIO loop T={turns} RUN={n} DIR={folder}" if turns else "SCENARIO oneshot" for n in range(agents)]
    async with Retinue(".", settings={"maxConcurrent": 20}) as crew:
        outcomes = await crew.map("bench-worker", tasks, limit=20)
    assert all(outcome.ok and outcome.turns == turns + 1 for outcome in outcomes), outcomes[0]

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
"""

PYDANTIC_AI = """
import asyncio, os, sys
from pathlib import Path
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.usage import UsageLimits

provider = AnthropicProvider(api_key="dummy", base_url=os.environ["ANTHROPIC_BASE_URL"])
agent = Agent(AnthropicModel("claude-sonnet-4-5", provider=provider), instructions="You are a bench worker.")

@agent.tool_plain
async def read(path: str) -> str:
    "Read a file."
    return await asyncio.to_thread(Path(path).read_text)

async def main(agents, turns, folder):
    tasks = [f"SCENARIO loop T={turns} RUN={n} DIR={folder}" if turns else "SCENARIO oneshot" for n in range(agents)]
    free = asyncio.Semaphore(20)

    async def one(task):
        async with free, agent.run_stream_events(task, usage_limits=UsageLimits(request_limit=None)) as events:
            async for event in events:
                last = event
            return last.result

    results = await asyncio.gather(*map(one, tasks))
    assert all(result.usage.requests == turns + 1 for result in results), results[0].usage

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
"""
PROGRAMS = {"Retinue": RETINUE, "pydantic-ai": PYDANTIC_AI}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--reps", type=int, default=3)
    given = parser.parse_args()
    require_rig()
    costs: dict[tuple[str, str], list[Cost]] = {}
    with Server() as server, Project() as project:
        environment = project.environment(server.url)
        works = {"start": ("1", "0"), "work": (str(given.agents), str(given.turns))}
        for _ in range(given.reps):
            for name, program in PROGRAMS.items():
                for work, size in works.items():
                    argv = [sys.executable, "-c", program, *size, str(project.files)]
                    costs.setdefault((name, work), []).append(measure(argv, environment, project.cwd))
    print(f"{given.agents} agents x {given.turns} turns, 20 at a time, medians of {given.reps}")
    print(f"{'':<14} {'start: CPU':>12} {'work: CPU':>12} {'work: wall':>12} {'peak memory':>12}")
    for name in PROGRAMS:
        start, work = costs[name, "start"], costs[name, "work"]
        cpu, wall = statistics.median(c.cpu for c in work), statistics.median(c.wall for c in work)
        peak = max(c.peak_mb for c in work)
        first = statistics.median(c.cpu for c in start)
        print(f"{name:<14} {first:>10.2f} s {cpu:>10.2f} s {wall:>10.2f} s {peak:>9.0f} MB")


if __name__ == "__main__":
    main()
