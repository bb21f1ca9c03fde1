"""Whatever happens in whatever order: no slot of a limiter is lost, none is given twice."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.outcome import Failure
from retinue.testing import settle
from tests.models.limiter_fleet import Fleet, Request, busy


class Story:
    """One method per thing that can happen; each takes a number to vary it."""

    def __init__(self, seed: int, prefixed: bool) -> None:
        self.fleet = Fleet(draw=random.Random(seed).random)
        self.fleet.gate()
        self.prefixed = prefixed

    def _pick(self, number: int) -> list[Request]:
        out = [request for request in self.fleet.requests if request.out]
        return [out[number % len(out)]] if out else []

    async def ask(self, number: int) -> None:
        await self.fleet.ask(1 + number // 2, **({"prefix": f"p{number % 3}"} if self.prefixed else {}))

    async def fine(self, number: int) -> None:
        await self.fleet.end(self._pick(number))

    async def busy(self, number: int) -> None:
        await self.fleet.end(self._pick(number), busy(None if number % 2 else number / 4))

    async def dropped(self, number: int) -> None:
        await self.fleet.end(self._pick(number), Failure("dropped", "x"))

    async def word(self, number: int) -> None:
        for request in self._pick(number):
            request.gate.began()

    async def cancel(self, number: int) -> None:
        for request in self._pick(number):
            request.task.cancel()

    async def cancel_waiting(self, number: int) -> None:
        """Sometimes in the very moment in which it is let in."""
        waits = [request for request in self.fleet.requests if request.waits]
        for request in self._pick(number) if number % 2 else ():
            request.end()
        if waits:
            waits[number % len(waits)].task.cancel()

    async def cancel_once_let_in(self, number: int) -> None:
        """The slot is granted, and the task is cancelled before it hears of it."""
        waits = [request for request in self.fleet.requests if request.waits]
        for request in self._pick(number):
            request.end()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for request in waits:
            request.task.cancel()

    async def time(self, number: int) -> None:
        await self.fleet.clock.advance(number / 10)

    async def long(self, number: int) -> None:
        await self.fleet.clock.advance(number * 20)


STEPS = [name for name in vars(Story) if not name.startswith("_")]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=60),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_no_slot_is_ever_lost_or_given_twice(steps: list[tuple[str, int]], prefixed: bool, seed: int) -> None:
    async def drive() -> None:
        story = Story(seed, prefixed)
        fleet = story.fleet
        for step, number in steps:
            await getattr(story, step)(number)
            await settle()
            assert fleet.state.in_flight == fleet.out()
            assert fleet.state.limit >= 1
        await fleet.finish()
        assert (fleet.state.in_flight, fleet.state.waiting) == (0, 0)
        if not prefixed:
            assert fleet.sent == sorted(fleet.sent, key=lambda name: int(name[1:])), "first come, first served"
        await fleet.clock.advance(400)
        await fleet.ask(40)
        assert fleet.out() == 40, "all is forgotten"
        await fleet.finish()
        assert fleet.clock.pending == 0

    asyncio.run(drive())
