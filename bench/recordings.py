"""Speed of recordings: 50 offline cases (goal: 10 s on two cores), and the export of a tree of 10,000 events (1 s).

python bench/recordings.py [--cases 50] [--events 10000] [--jobs 2]
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from retinue.core.delegation import new_run_id
from retinue.core.events import (
    AssistantEnded,
    MessageAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect
from retinue.core.run_state import RunPlace
from retinue.core.usage import Usage
from retinue.guard.redact import Redactor
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.models.keys import environment as process_environment
from retinue.recordings.case_file import read_test_file
from retinue.recordings.case_run import SuiteOptions
from retinue.recordings.cassette import export_cassette, parse_cassette
from retinue.recordings.suite import Suite

AGENTS = Path(__file__).parent.parent / "tests" / "builtin" / "agents"
EVENTS_OF_TURN = 7
TEXT = "def load(path):\n    return open(path).read()\n" * 12


def measure_cases(count: int, jobs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        shutil.copytree(AGENTS, base / "agents")
        path = base / "agents" / "Explore.test.yaml"
        case = """
  - name: case {number}
    task: Where is a file opened and not closed?
    model: {{scenario: cassettes/Explore-finds-a-place-and-changes-nothing.cassette.jsonl}}
    expect:
      ended: completed
      files: {{written: [], read: [src/io.py]}}
      tools: {{called: [grep, read]}}
"""
        text = "agent: Explore\nfixture: fixtures/small\ncases:\n"
        path.write_text(text + "".join(case.format(number=number) for number in range(count)))
        tests = read_test_file(path)
        chosen = [(tests, number) for number in range(count)]
        began, worked = time.perf_counter(), time.process_time()
        results = asyncio.run(Suite(SuiteOptions(jobs=jobs), process_environment()).run(chosen))
        seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    passed = sum(result.verdict == "passed" for result in results)
    print(f"{passed} of {count} offline cases passed in {seconds:.2f} s, {cpu:.2f} s of processor time (goal: 10 s)")


async def write_tree(folder: Path, events: int) -> str:
    """Write a main run with four children of equal length, and return its id."""
    log = Log.open(folder)
    ids = [new_run_id() for _ in range(5)]
    turns = events // (EVENTS_OF_TURN * len(ids))
    for number, run_id in enumerate(ids):
        place = RunPlace(run_id, None if number == 0 else ids[0], ids[0])
        log.append(place, RunCreated("Explore", "Look", {}, "", "x/y", str(folder / "work"), min(number, 1)))
        log.append(place, RunStarted("x/y", ("read",), str(folder / "work")))
        log.append(place, MessageAdded(user("Look")))
        for turn in range(1, turns + 1):
            for body in turn_events(folder, run_id, turn):
                log.append(place, body)
            if turn % 50 == 0:
                await log.flush()
        log.append(place, RunEnded(Outcome("completed", "Done.", turns=turns)))
    await log.flush()
    await log.close()
    return ids[0]


def turn_events(folder: Path, run_id: str, turn: int) -> list:
    call = ToolCall(f"toolu_{run_id[:8]}{turn:06d}", "read", {"path": str(folder / "work" / f"src/f{turn}.py")})
    message = AssistantMessage((Text("I read the next one."), call), "tool_use", Usage(900, 30), "x/y")
    result = ToolResult(call.id, "read", (Text(TEXT),))
    effect = ToolEffect(reads=(call.arguments["path"],))
    return [
        TurnStarted(turn),
        AssistantEnded(turn, message),
        ToolStarted(call),
        ToolEnded(call.id, "read", result, effect, 3),
        ToolsEnded(ToolMessage((result,))),
        TurnEnded(turn, message.usage, message.usage),
    ]


def measure_export(events: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_id = asyncio.run(write_tree(folder, events))
        best = cpu = float("inf")
        for _ in range(3):
            began, worked = time.perf_counter(), time.process_time()
            with LogReader.open(folder) as reader:
                data = export_cassette(reader, reader.run(run_id), Path.home(), Redactor(process_environment()))
            best, cpu = min(best, time.perf_counter() - began), min(cpu, time.process_time() - worked)
        began = time.perf_counter()
        parse_cassette(data, "bench")
        again = time.perf_counter() - began
    lines = data.count(b"\n") - 1
    size = f"{len(data) / 1e6:.1f} MB"
    print(f"{lines} events ({size}) exported in {best:.2f} s, {cpu:.2f} s of processor time (goal: 1 s)")
    print(f"read back in {again:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--events", type=int, default=12_000)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    measure_cases(args.cases, args.jobs)
    measure_export(args.events)


if __name__ == "__main__":
    main()
