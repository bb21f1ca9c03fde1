"""What the limiter costs a run while nothing is wrong: before, first word and after one request.

    python bench/limiter.py [--requests 100000]

CPU of this process, best of five, with a bare pair of coroutines subtracted for "own".
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from retinue.models.limiter import LimiterGate, Limiters


class Bare:
    async def before(self) -> None:
        return None

    def began(self) -> None:
        return None

    async def after(self, failure: None) -> None:
        return None


async def passes(gate: LimiterGate | Bare, count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        await gate.before()
        gate.began()
        await gate.after(None)
    return (time.process_time() - began) / count


async def many(limiters: Limiters, count: int) -> float:
    """As many runs as requests, all at once, all with the same prefix: one leads, all follow."""
    gates = [limiters.gate_for("anthropic", "many", "prefix") for _ in range(count)]

    async def one(gate: LimiterGate) -> None:
        await gate.before()
        await asyncio.sleep(0)
        gate.began()
        await gate.after(None)

    began = time.process_time()
    await asyncio.gather(*(one(gate) for gate in gates))
    return (time.process_time() - began) / count


def best(work: Callable[[], Awaitable[float]]) -> float:
    return min(asyncio.run(_timed(work)) for _ in range(5)) * 1e6


async def _timed(work: Callable[[], Awaitable[float]]) -> float:
    return await work()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    count = parser.parse_args().requests
    with tempfile.TemporaryDirectory() as home:
        bare = best(lambda: passes(Bare(), count))
        calm = best(lambda: passes(Limiters(Path(home)).gate_for("anthropic", "me"), count))
        warm = best(lambda: passes(Limiters(Path(home)).gate_for("anthropic", "me", "prefix"), count))
        crowd = best(lambda: many(Limiters(Path(home)), 1_000))
    print(f"one request, nothing wrong:       {calm:6.2f} µs, own {calm - bare:6.2f} µs (goal 5)")
    print(f"one request with a warm prefix:   {warm:6.2f} µs, own {warm - bare:6.2f} µs (goal 5)")
    print(f"1000 cold starts with one prefix: {crowd:6.2f} µs each")


if __name__ == "__main__":
    main()
