"""What the faces for other programs cost: start, and the way of a call.

    python bench/faces.py [--starts 5] [--calls 200]

Prints, each with its goal:

- `retinue mcp` from its start to the answer of tools/list: wall and CPU time, the least of `--starts` (goal: 1.2 s)
- one call over stdio, there and back: the median of `--calls` of list_agents, list_runs, get_result of a run that has
  ended, and tasks/get of the same (goal: 5 ms)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.core.events import RunCreated, RunEnded, RunStarted
from retinue.core.outcome import Outcome
from retinue.log.rows import RunPlace
from retinue.log.store import Log
from retinue.settings.places import state_folder

_HERTZ = os.sysconf("SC_CLK_TCK")
RUN = "0000beef-past-4000"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


class Program:
    """A face that talks over stdin and stdout, one JSON document a line."""

    def __init__(self, home: Path, cwd: Path, *words: str) -> None:
        environment = {**os.environ, "RETINUE_HOME": str(home), "HOME": str(home)}
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retinue", *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.number = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the message that answers it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        while True:
            found = json.loads(self.process.stdout.readline())
            if found.get("id") == self.number:
                return found

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _HERTZ

    def end(self) -> None:
        self.process.communicate()


async def fill(folder: Path) -> None:
    """Write a run that has ended."""
    async with Log.open(folder) as log:
        place = RunPlace(RUN)
        log.append(place, RunCreated("Explore", "Look", {"name": "Explore"}, "h", "bench/model", "/project", 1))
        log.append(place, RunStarted("bench/model", (), "/project"))
        log.append(place, RunEnded(Outcome("completed", "Done.")))


def measure_mcp_start(home: Path, cwd: Path, starts: int) -> None:
    made = []
    for _ in range(starts):
        program = Program(home, cwd, "mcp")
        found = program.ask("tools/list", {"_meta": META})
        assert found["result"]["tools"]
        made.append((time.perf_counter() - program.began, program.cpu()))
        program.end()
    wall, cpu = min(each[0] for each in made), min(each[1] for each in made)
    print(f"retinue mcp to tools/list: {wall:.2f} s, CPU {cpu:.2f} s (goal 1.2 s)")


def measure_mcp_calls(home: Path, cwd: Path, calls: int) -> None:
    program = Program(home, cwd, "mcp")
    program.ask("tools/list", {"_meta": META})
    for name, arguments in (("list_agents", {}), ("list_runs", {}), ("get_result", {"run": RUN})):
        params = {"name": name, "arguments": arguments, "_meta": META}
        report(name, calls, lambda params=params: program.ask("tools/call", params))
    report("tasks/get", calls, lambda: program.ask("tasks/get", {"taskId": RUN, "_meta": META}))
    program.end()


def report(name: str, calls: int, ask: Callable[[], dict[str, Any]]) -> None:
    took = []
    for _ in range(calls):
        before = time.perf_counter()
        found = ask()
        took.append((time.perf_counter() - before) * 1000)
        assert "result" in found and not found["result"].get("isError"), found
    print(f"{name}: median {statistics.median(took):.1f} ms, least {min(took):.1f} ms (goal 5 ms)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, cwd = Path(folder) / "home", Path(folder) / "project"
        home.mkdir()
        cwd.mkdir()
        os.environ["RETINUE_HOME"] = str(home)
        asyncio.run(fill(state_folder(cwd.resolve())))
        measure_mcp_start(home, cwd, args.starts)
        measure_mcp_calls(home, cwd, args.calls)


if __name__ == "__main__":
    main()
