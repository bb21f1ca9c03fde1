"""Many agents in one process: CPU, wall time and memory beside a bare aiohttp client.

    python bench/fleet.py [--agents 1000] [--turns 5] [--reps 3]

1. That many agents times that many turns against a server that answers at once, through the
   library, with the log on; a bare aiohttp client does the same exchanges in the same run.
2. `retinue -p` with 64 agents times 5 turns: the CPU of the whole process, its start included.
3. The same with a model that takes 200 ms: the time from the main agent's calls to its next
   request, against the six answers that each agent has to wait for one after another.

For some minutes after thousands of files were deleted, as this does at its end, ext4 takes up to a
millisecond to make one, and a run has a transcript: a second measurement soon after the first is
better made in memory (`TMPDIR=/dev/shm`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rig.process import Cost, line, measure, median_cpu
from rig.project import Project, retinue
from rig.server import Server, require_rig

FANOUT = 64
FANOUT_TURNS = 5
LATENCY = 0.2
TOOL = {
    "name": "read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


# ------------------------------------------------------------------ in the measured processes
async def agents_of_retinue(tasks: list[str]) -> int:
    from retinue import Retinue

    async with Retinue(".") as supervisor:
        runs = await asyncio.gather(*(supervisor.spawn("bench-worker", task) for task in tasks))
        outcomes = [await run.wait() for run in runs]
    return sum(outcome.ended == "completed" and "RESULT" in outcome.text for outcome in outcomes)


async def bare_aiohttp(tasks: list[str]) -> int:
    """The least that has to be done: ask, read the stream, read the file, ask again."""
    import aiohttp

    url = os.environ["BENCH_URL"] + "/v1/messages"
    system = "You are a bench worker. Do exactly what the task says, then report in one line."

    async def exchange(client: aiohttp.ClientSession, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        body = {"model": "m", "max_tokens": 4096, "stream": True, "system": system, "tools": [TOOL]}
        blocks: list[dict[str, Any]] = []
        async with client.post(url, data=json.dumps({**body, "messages": messages}).encode()) as answer:
            async for found in answer.content:
                if not found.startswith(b"data:"):
                    continue
                event = json.loads(found[5:])
                if event["type"] == "content_block_start":
                    blocks.append({**event["content_block"], "_arguments": ""})
                elif event["type"] == "content_block_delta":
                    delta = event["delta"]
                    if delta["type"] == "text_delta":
                        blocks[-1]["text"] += delta["text"]
                    else:
                        blocks[-1]["_arguments"] += delta["partial_json"]
        for block in blocks:
            arguments = block.pop("_arguments")
            if block["type"] == "tool_use":
                block["input"] = json.loads(arguments)
        return blocks

    async def agent(client: aiohttp.ClientSession, task: str) -> bool:
        messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
        while True:
            blocks = await exchange(client, messages)
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                return any("RESULT" in block.get("text", "") for block in blocks)
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": Path(call["input"]["path"]).read_text()}
                for call in calls
            ]
            messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]

    headers = {"content-type": "application/json", "x-api-key": "dummy", "anthropic-version": "2023-06-01"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as client:
        return sum(await asyncio.gather(*(agent(client, task) for task in tasks)))


CLIENTS = {"retinue": agents_of_retinue, "aiohttp": bare_aiohttp}


def drive(client: str, agents: int, turns: int, files: str) -> None:
    """Prints the wall time of the exchanges; the parent adds what the process cost."""
    tasks = [f"SUBTASK {number} TURNS={turns - 1} DIR={files}" for number in range(agents)]
    begin = time.perf_counter()
    done = asyncio.run(CLIENTS[client](tasks))
    if done != agents:
        raise SystemExit(f"{client}: only {done} of {agents} agents finished")
    print(time.perf_counter() - begin)


# ------------------------------------------------------------------ the measurements
def many(server: Server, project: Project, agents: int, turns: int, reps: int) -> None:
    environment = project.environment(server.url)
    costs: dict[str, list[Cost]] = {name: [] for name in CLIENTS}
    for _ in range(reps):
        for name, found in costs.items():
            shape = ["--agents", str(agents), "--turns", str(turns), "--files", str(project.files)]
            argv = [sys.executable, __file__, "--drive", name, *shape]
            found.append(measure(argv, environment, project.cwd))
            server.reset()
    wall = {name: statistics.median(float(cost.output) for cost in found) for name, found in costs.items()}
    cpu = {name: median_cpu(found) for name, found in costs.items()}
    peak = max(cost.peak_mb for cost in costs["retinue"])
    print(f"{agents} agents x {turns} turns, no latency, medians of {reps}, beside a bare aiohttp client")
    for what, figures in (("CPU", cpu), ("wall", wall)):
        mine, theirs = figures["retinue"], figures["aiohttp"]
        line(f"{what}: {mine:.2f} against {theirs:.2f} s", f"{mine / theirs:.2f} x", "2.0 x", mine <= 2 * theirs)
    line("peak memory", f"{peak:.0f} MB", "400 MB", peak <= 400)


def fanout(server: Server, project: Project, reps: int) -> None:
    environment = project.environment(server.url)
    scenario = f"SCENARIO fanout N={FANOUT} TURNS={FANOUT_TURNS} BG=1 WAIT=1 DIR={project.files}"
    measure(retinue("SCENARIO oneshot"), environment, project.cwd)
    costs, first = [], []
    for _ in range(reps):
        server.reset()
        costs.append(measure(retinue(scenario), environment, project.cwd))
        first += starts(server.records())
    cpu, late = median_cpu(costs), sorted(first)[int(len(first) * 0.95)]
    print(f"retinue -p, {FANOUT} agents x {FANOUT_TURNS} turns, no latency, medians of {reps}")
    line("CPU of the whole process, start included", f"{cpu:.2f} s", "1.0 s", cpu <= 1.0)
    print(f"{'from the call to the first request of an agent, p95':<52} {late * 1e3:>15.0f} ms")
    spans = []
    for _ in range(reps):
        server.reset()
        measure(retinue(f"{scenario} LAT={LATENCY * 1e3:.0f}"), environment, project.cwd)
        spans.append(span(server.records()))
    ideal, taken = LATENCY * (FANOUT_TURNS + 1), statistics.median(spans)
    shown = f"with {LATENCY * 1e3:.0f} ms a request: {taken:.2f} against {ideal:.2f} s"
    line(shown, f"{taken / ideal:.2f} x", "1.3 x", taken <= 1.3 * ideal)


def starts(records: list[dict[str, Any]]) -> list[float]:
    """Seconds from the end of the main agent's calls to the first request of each agent."""
    called = next(each["t_last"] for each in records if each["role"] == "main")
    first: dict[str, float] = {}
    for each in records:
        if each["role"] == "sub":
            first.setdefault(each["agent"], each["t_arr"])
    return [at - called for at in first.values()]


def span(records: list[dict[str, Any]]) -> float:
    """Seconds from the end of the main agent's calls to the last answer that an agent got."""
    called = next(each["t_last"] for each in records if each["role"] == "main")
    return max(each["t_last"] for each in records if each["role"] == "sub") - called


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--drive", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--files", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        drive(args.drive, args.agents, args.turns, args.files)
        return
    require_rig()
    with Server() as server, Project() as project:
        many(server, project, args.agents, args.turns, args.reps)
        fanout(server, project, args.reps)


if __name__ == "__main__":
    main()
