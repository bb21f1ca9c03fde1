"""When ends are announced: cases O01 and O02, on a clock that only moves when told."""

import pytest

from retinue.runs.notifications import CompletionGroups, Delivery
from retinue.testing import FakeClock


@pytest.fixture
def board():
    clock = FakeClock()
    deliveries: list[Delivery] = []
    return CompletionGroups(clock, deliveries.append), clock, deliveries


async def start(joins, clock, *runs, mode="smart"):
    for run in runs:
        joins.started(run, mode)
    await clock.advance(0.1)


async def test_async_announces_each_end_by_itself(board):
    joins, clock, deliveries = board
    await start(joins, clock, "a", "b", mode="async")
    joins.ended("a")
    joins.ended("b")
    assert deliveries == [Delivery(("a",)), Delivery(("b",))]


async def test_the_first_end_of_a_group_is_held(board):
    joins, clock, deliveries = board
    await start(joins, clock, "a", "b")
    joins.ended("a")
    await clock.advance(29.9)
    assert deliveries == []
    assert joins.pending


async def test_all_ended_in_time_is_one_delivery(board):
    joins, clock, deliveries = board
    await start(joins, clock, "a", "b", "c")
    for run in ("b", "a", "c"):
        joins.ended(run)
    assert deliveries == [Delivery(("b", "a", "c"), group=True)]
    await clock.advance(100)
    assert len(deliveries) == 1


async def test_timeout_delivers_a_part_and_stragglers_follow_in_15_seconds(board):
    joins, clock, deliveries = board
    await start(joins, clock, "a", "b", "c", "d")
    joins.ended("a")
    await clock.advance(30)
    assert deliveries == [Delivery(("a",), group=True, partial=True)]
    joins.ended("b")
    await clock.advance(15)
    assert deliveries[1:] == [Delivery(("b",), group=True, partial=True)]
    joins.ended("c")
    joins.ended("d")
    assert deliveries[2:] == [Delivery(("c", "d"), group=True)]


async def test_an_end_during_the_gathering_is_fed_in_when_the_batch_is_known(board):
    joins, clock, deliveries = board
    joins.started("a", "smart")
    joins.ended("a")
    joins.started("b", "smart")
    assert deliveries == []
    await clock.advance(0.1)
    joins.ended("b")
    assert deliveries == [Delivery(("a", "b"), group=True)]


async def test_smart_with_one_run_is_alone_and_group_with_one_run_really_is_a_group(board):
    joins, clock, deliveries = board
    await start(joins, clock, "a")
    joins.ended("a")
    await start(joins, clock, "b", mode="group")
    joins.ended("b")
    assert deliveries == [Delivery(("a",)), Delivery(("b",), group=True)]


async def test_close_stops_the_timers_and_loses_nothing(board):
    joins, clock, deliveries = board
    await start(joins, clock, "a", "b")
    joins.ended("a")
    joins.started("c", "smart")
    joins.ended("c")
    joins.close()
    assert sorted(deliveries[0].runs) == ["a", "c"]
    await clock.advance(100)
    assert len(deliveries) == 1
