"""What the limiter costs a run while nothing is wrong, and what letting one cold start go first saves.

    python bench/limiter.py [--requests 100000]

CPU of this process, best of five, with a bare pair of coroutines subtracted for "own". The cold starts
are those of a fan-out into eight agents with one prompt: how many pay for writing the prompt's cache.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

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


async def cold_writes(prefix: str | None, count: int = 8) -> int:
    """Return how many of `count` runs that start at once send a prompt that no cache holds yet."""
    limiters = Limiters()
    cached = False
    writes = 0

    async def one(gate: LimiterGate) -> None:
        nonlocal cached, writes
        await gate.before()
        writes += not cached
        await asyncio.sleep(0.01)  # the provider caches a prompt when its first answer begins
        cached = True
        gate.began()
        await gate.after(None)

    await asyncio.gather(*(one(limiters.gate_for("anthropic", "cold", prefix)) for _ in range(count)))
    return writes


def best(work: Callable[[], Awaitable[float]]) -> float:
    return min(asyncio.run(_timed(work)) for _ in range(5)) * 1e6


async def _timed(work: Callable[[], Awaitable[float]]) -> float:
    return await work()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    count = parser.parse_args().requests
    bare = best(lambda: passes(Bare(), count))
    calm = best(lambda: passes(Limiters().gate_for("anthropic", "me"), count))
    warm = best(lambda: passes(Limiters().gate_for("anthropic", "me", "prefix"), count))
    crowd = best(lambda: many(Limiters(), 1_000))
    led, unled = asyncio.run(cold_writes("prefix")), asyncio.run(cold_writes(None))
    print(f"one request, nothing wrong:       {calm:6.2f} µs, own {calm - bare:6.2f} µs (goal 5)")
    print(f"one request with a warm prefix:   {warm:6.2f} µs, own {warm - bare:6.2f} µs (goal 5)")
    print(f"1000 cold starts with one prefix: {crowd:6.2f} µs each")
    print(f"8 cold starts with one prefix:    {led} writes the cache; {unled} without waiting for the first")


if __name__ == "__main__":
    main()
