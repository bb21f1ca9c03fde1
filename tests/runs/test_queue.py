"""Slots of background runs: case J02, and that no nesting of waits can deadlock them."""

from hypothesis import given
from hypothesis import strategies as st

from retinue.runs.queue import RunQueue


async def test_over_the_limit_runs_wait_and_start_in_order():
    queue = RunQueue(2)
    places = {name: queue.join(name) for name in "abcd"}
    assert [name for name, place in places.items() if place.done()] == ["a", "b"]
    assert (queue.position("c"), queue.position("d"), queue.position("a")) == (1, 2, None)
    queue.leave("a")
    assert places["c"].done()
    assert not places["d"].done()


async def test_raising_the_limit_starts_waiting_runs_at_once_and_it_is_never_below_one():
    queue = RunQueue(1)
    places = [queue.join(name) for name in "abc"]
    queue.limit = 3
    assert all(place.done() for place in places)
    queue.limit = -5
    assert queue.limit == 1


async def test_leaving_the_line_cancels_the_place_and_skips_it():
    queue = RunQueue(1)
    queue.join("a")
    second, third = queue.join("b"), queue.join("c")
    queue.leave("b")
    queue.leave("a")
    assert second.cancelled()
    assert third.done()
    queue.leave("nobody")


@given(st.lists(st.tuples(st.sampled_from(["join", "leave"]), st.integers(0, 12)), max_size=80), st.integers(1, 4))
def test_slots_are_never_oversold_and_nobody_waits_beside_a_free_one(steps, limit):
    import asyncio

    async def play():
        queue = RunQueue(limit)
        inside: dict[int, asyncio.Future] = {}
        for step, number in steps:
            if step == "join" and number not in inside:
                inside[number] = queue.join(str(number))
            elif step == "leave" and number in inside:
                inside.pop(number)
                queue.leave(str(number))
            holding = sum(place.done() for place in inside.values())
            assert holding == queue.running <= limit
            assert holding == limit or not queue.waiting

    asyncio.run(play())
