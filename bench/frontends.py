"""What the front ends for other programs cost: start, and the way of a call.

    python bench/frontends.py [--starts 5] [--calls 200] [--deltas 20000]

Prints, each with its goal:

- `retinue mcp` from its start to the answer of tools/list: wall and CPU time, the least of `--starts` (goal: 1.2 s)
- one call over stdio, there and back: the median of `--calls` of list_agents, list_runs, get_result of a run that has
  ended, and tasks/get of the same (goal: 5 ms)
- `retinue acp` from its start to the answer of initialize, as above (goal: 0.3 s); and to that of the first session/new
- `retinue acp`, one piece of text: CPU of the process for each of `--deltas` pieces that a run of another process
  writes in five seconds, and of the translation alone, from the event to the line that is sent (goal: 100 µs each)
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

import msgspec

from retinue.core.events import RunCreated, RunEnded, RunStarted, TextDelta, TurnStarted
from retinue.core.outcome import Outcome
from retinue.core.run_state import RunPlace
from retinue.log.store import Log
from retinue.settings.places import state_folder

_HERTZ = os.sysconf("SC_CLK_TCK")
RUN = "0000beef-past-4000"
TALK = "0000beef-talk-4000"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


class Program:
    """A front end that talks over stdin and stdout, one JSON document a line."""

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


def measure_acp_start(home: Path, cwd: Path, starts: int) -> None:
    made = []
    for _ in range(starts):
        program = Program(home, cwd, "acp")
        program.ask("initialize", {"protocolVersion": 1})
        made.append((time.perf_counter() - program.began, program.cpu()))
        program.ask("session/new", {"cwd": str(cwd), "mcpServers": []})
        opened = time.perf_counter() - program.began
        program.end()
    wall, cpu = min(each[0] for each in made), min(each[1] for each in made)
    print(f"retinue acp to initialize: {wall:.2f} s, CPU {cpu:.2f} s (goal 0.3 s); to session/new: {opened:.2f} s")


async def speak(folder: Path, cwd: Path, deltas: int, follow: Callable[[], None]) -> None:
    """Write the text of a live run, piece by piece, for five seconds; `follow` is called when it has begun."""
    async with Log.open(folder) as log:
        place = RunPlace(TALK)
        log.append(place, RunCreated("main", "Talk", {"name": "main"}, "h", "bench/model", str(cwd)))
        log.append(place, RunStarted("bench/model", (), str(cwd)))
        log.append(place, TurnStarted(1))
        await log.flush()
        await asyncio.to_thread(follow)
        for tick in range(100):
            for _ in range(deltas // 100):
                log.append(place, TextDelta("some words "))
            await asyncio.sleep(0.05 if tick < 99 else 0.5)
        await log.flush()


def measure_acp_text(home: Path, cwd: Path, deltas: int) -> None:
    program = Program(home, cwd, "acp")
    program.ask("initialize", {"protocolVersion": 1})
    before = [0.0]

    def follow() -> None:
        program.ask("session/load", {"sessionId": TALK, "cwd": str(cwd), "mcpServers": []})
        before[0] = program.cpu()

    asyncio.run(speak(state_folder(cwd.resolve()), cwd.resolve(), deltas, follow))
    took = program.cpu() - before[0]
    program.end()
    print(f"retinue acp, a piece of text: {took / deltas * 1e6:.0f} µs of CPU (goal 100 µs)")
    translate(deltas)


def translate(deltas: int) -> None:
    """Measure the translation of one event into one line."""
    from retinue.app.stream import FeedFrame, text_frame
    from retinue.core.run_state import RunPlace
    from retinue.frontends.acp.tree import TreeTranslator
    from retinue.frontends.acp.updates import ClientFeatures
    from retinue.log.follow import TextPiece

    story = TreeTranslator(TALK, ClientFeatures(), lambda model: None)
    place = {"run_id": TALK, "parent_id": None, "root_id": TALK, "seq": 3, "at": 1.0}
    made = {"agent": "main", "task": "Talk", "model": "m", "cwd": "/", "spec": {}, "spec_hash": "", "options": {}}
    created = json.dumps({"type": "run.created", **place, **made}).encode()
    story.take(FeedFrame(1, "run.created", TALK, None, created))
    piece = TextPiece(RunPlace(TALK), 3, "text", "some words ")
    before = time.perf_counter()
    for _ in range(deltas):
        for session, update in story.take(text_frame(piece, "text.delta")):
            params = {"sessionId": session, "update": update}
            msgspec.json.encode({"jsonrpc": "2.0", "method": "session/update", "params": params})
    took = time.perf_counter() - before
    print(f"retinue acp, the translation of one event: {took / deltas * 1e6:.0f} µs (goal 100 µs)")


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
    parser.add_argument("--deltas", type=int, default=20_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, cwd = Path(folder) / "home", Path(folder) / "project"
        home.mkdir()
        cwd.mkdir()
        os.environ["RETINUE_HOME"] = str(home)
        asyncio.run(fill(state_folder(cwd.resolve())))
        measure_mcp_start(home, cwd, args.starts)
        measure_mcp_calls(home, cwd, args.calls)
        measure_acp_start(home, cwd, args.starts)
        measure_acp_text(home, cwd, args.deltas)


if __name__ == "__main__":
    main()
