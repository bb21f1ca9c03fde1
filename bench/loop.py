"""What the loop itself costs, with a scripted model: CPU per turn, per delta, memory per waiting run.

    python bench/loop.py [--turns 2000] [--deltas 20000] [--runs 2000]

Times are CPU of this process, best of five; what the scripted model and a bare generator that
passes the same parts on cost is measured the same way and subtracted for "own".
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import time
import tracemalloc
from collections.abc import AsyncGenerator

from retinue.core.messages import user
from retinue.loop import Controls, run_loop
from retinue.models.protocol import Finished, ModelRequest
from retinue.testing import Call, FakeTool, Hang, Say, ScriptedModel, Turn, job, settle

TOOL = FakeTool("look", lambda path: f"content of {path}")
REQUEST = ModelRequest(system="s", messages=(user("go"),))


async def passed_on(model: ScriptedModel, requests: int) -> int:
    """The floor: the same answers through one generator that adds nothing."""

    async def bare() -> AsyncGenerator[object, None]:
        for _ in range(requests):
            async for part in model.stream(REQUEST):
                if isinstance(part, Finished):
                    break
                yield part

    return sum([1 async for _ in bare()])


async def run(model: ScriptedModel) -> None:
    async for _ in run_loop(job("go", tools=[TOOL]), model, Controls()):
        pass
    model.assert_exhausted()


def cpu(work: object, *arguments: object) -> float:
    best = float("inf")
    for _ in range(5):
        gc.collect()
        made = [argument() if callable(argument) else argument for argument in arguments]
        began = time.process_time()
        asyncio.run(work(*made))  # type: ignore[operator]
        best = min(best, time.process_time() - began)
    return best


def per_turn(turns: int) -> tuple[float, float]:
    # A different file each time: the same call again and again ends a run.
    calls = [Turn("Looking.", Call("look", {"path": f"{number}.py"})) for number in range(turns)]
    make = lambda: ScriptedModel(*calls, "Done.")  # noqa: E731
    return cpu(run, make) / turns, cpu(passed_on, make, turns + 1) / turns


def per_delta(deltas: int) -> tuple[float, float]:
    make = lambda: ScriptedModel(Turn(Say("x" * deltas, chunks=deltas)))  # noqa: E731
    return cpu(run, make) / deltas, cpu(passed_on, make, 1) / deltas


async def waiting(count: int) -> tuple[float, float]:
    """Python's own allocations and the growth of resident memory, per run that waits."""
    models = [ScriptedModel(Turn(Call("look", {"path": "a.py"})), Turn(Hang())) for _ in range(count)]
    gc.collect()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    tasks = [asyncio.create_task(run(model)) for model in models]
    await settle()
    assert all(len(model.requests) == 2 for model in models), "not every run waits for its second answer"
    gc.collect()
    allocated = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    assert len(asyncio.all_tasks()) == count + 1, "more than one task per waiting run"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return allocated / count / 1024, grown / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=2_000)
    arguments = parser.parse_args()
    turn, bare_turn = per_turn(arguments.turns)
    delta, bare_delta = per_delta(arguments.deltas)
    print(f"per turn with one tool call: {turn * 1e6:6.1f} µs, own {(turn - bare_turn) * 1e6:6.1f} µs (goal 150)")
    print(f"per streamed delta:          {delta * 1e6:6.2f} µs, own {(delta - bare_delta) * 1e6:6.2f} µs (goal 8)")
    allocated, grown = asyncio.run(waiting(arguments.runs))
    print(f"per waiting run ({arguments.runs}):     {allocated:6.1f} kB allocated, {grown:6.1f} kB resident (goal 150)")


if __name__ == "__main__":
    main()
