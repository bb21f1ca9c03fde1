"""What the log costs: on the event loop, in all, and until an event is safe.

    python bench/log.py [--events N]

Prints microseconds. "loop" is the time `append` takes on the event loop's thread; "cpu" is what
the whole process spends per event, writing included; "barrier" is the wall time of one
`append` and `await flush()`, as before a tool with effects runs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from retinue.core.events import (
    AssistantEnded,
    Body,
    MessageAdded,
    RunCreated,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.permission import ToolEffect
from retinue.core.run_state import RunPlace
from retinue.core.usage import Usage
from retinue.guard.redact import Redactor
from retinue.log.store import Log

PLACE = RunPlace("bench")
TOOL_OUTPUT = "".join(f"{n:4} | value = compute(item_{n}, limit=10)\n" for n in range(40))


def beginning(folder: Path) -> list[Body]:
    transcript = str(folder / "transcripts" / "bench.jsonl")
    return [
        RunCreated("bench", "task", {"name": "bench"}, "hash", "p/m", str(folder)),
        RunStarted("p/m", ("read",), str(folder), transcript),
        MessageAdded(user("task")),
    ]


def turn(number: int) -> Iterator[Body]:
    call = ToolCall(f"call_{number}", "read", {"path": f"src/file_{number}.py", "limit": 40})
    result = ToolResult(call.id, "read", (Text(TOOL_OUTPUT),))
    yield TurnStarted(number)
    yield AssistantEnded(number, AssistantMessage((Text("I will look at it."), call), "tool_use", Usage(900, 40)))
    yield ToolStarted(call)
    yield ToolEnded(call.id, "read", result, ToolEffect(reads=("src/file.py",)), 3)
    yield ToolsEnded(ToolMessage((result,)))
    yield TurnEnded(number, Usage(900, 40), Usage(900 * number, 40 * number))


async def durable(log: Log, turns: int) -> dict[str, float]:
    on_loop, count, cpu = 0.0, 0, time.process_time()
    for number in range(1, turns + 1):
        for body in turn(number):
            begin = time.perf_counter()
            log.append(PLACE, body)
            on_loop += time.perf_counter() - begin
            count += 1
            if isinstance(body, ToolStarted):
                await log.flush()
    await log.flush()
    return {"loop": on_loop / count * 1e6, "cpu": (time.process_time() - cpu) / count * 1e6}


async def streamed(log: Log, deltas: int) -> dict[str, float]:
    words = [f"{word} " for word in TOOL_OUTPUT.split()]
    log.append(PLACE, TurnStarted(10**6))
    await log.flush()
    on_loop, cpu = 0.0, time.process_time()
    for number in range(deltas):
        begin = time.perf_counter()
        log.append(PLACE, TextDelta(words[number % len(words)]))
        on_loop += time.perf_counter() - begin
        if number % 20 == 0:
            await asyncio.sleep(0)
    await log.flush()
    return {"loop": on_loop / deltas * 1e6, "cpu": (time.process_time() - cpu) / deltas * 1e6}


async def barrier(log: Log, rounds: int) -> dict[str, float]:
    waits = []
    for number in range(rounds):
        begin = time.perf_counter()
        log.append(PLACE, TurnStarted(number))
        await log.flush()
        waits.append((time.perf_counter() - begin) * 1e6)
    waits.sort()
    return {"median": statistics.median(waits), "p99": waits[int(len(waits) * 0.99) - 1]}


async def measure(events: int, redact: Redactor | None) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "projects" / "bench"
        async with Log.open(folder, redact=redact) as log:
            for body in beginning(folder):
                log.append(PLACE, body)
            await log.flush()
            found = {"durable event": await durable(log, events // 6)}
            found["streamed delta"] = await streamed(log, events)
            found["barrier"] = await barrier(log, max(events // 10, 100))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=6_000)
    args = parser.parse_args()
    for name, redact in (("without redaction", None), ("with redaction", Redactor({}))):
        print(name)
        for kind, figures in asyncio.run(measure(args.events, redact)).items():
            print(f"  {kind:<15}", "  ".join(f"{what} {value:8.1f} µs" for what, value in figures.items()))


if __name__ == "__main__":
    main()
