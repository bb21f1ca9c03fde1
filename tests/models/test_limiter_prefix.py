"""Cold starts that share a prompt prefix: one goes first, the others find the cache warm (D13)."""

from __future__ import annotations

import pytest

from retinue.core.outcome import Failure
from retinue.core.tool import ToolSpec
from retinue.models.limiter import shared_prefix
from retinue.models.providers import Provider
from retinue.testing import settle
from tests.models.limiter_fleet import Fleet, busy


async def test_later_starts_wait_for_the_first_word_of_the_first() -> None:
    fleet = Fleet()
    leader, *others = await fleet.ask(10, prefix="p")
    assert leader.out and all(request.waits for request in others)
    leader.gate.began()
    await settle()
    assert fleet.out() == 10
    await fleet.finish()
    assert fleet.sent == [f"r{number}" for number in range(10)]


async def test_a_run_that_is_alone_never_waits() -> None:
    fleet = Fleet()
    gate = fleet.gate(prefix="p")
    for failure in (None, Failure("server", "x"), busy(retry_after=0.0), None):
        (request,) = await fleet.ask(1, gate=gate)
        assert request.out
        await fleet.end([request], failure)
        await fleet.clock.advance(0.2)
    assert fleet.clock.pending == 0


async def test_a_warm_prefix_makes_nobody_wait_and_cools_down() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(1, prefix="p"))
    requests = await fleet.ask(5, prefix="p")
    assert fleet.out() == 5
    await fleet.clock.advance(200)
    await fleet.end(requests)
    await fleet.clock.advance(100)
    assert all(request.out for request in await fleet.ask(2, prefix="p")), "each use keeps it warm"
    await fleet.finish()
    await fleet.clock.advance(300)
    cold = await fleet.ask(2, prefix="p")
    assert [request.out for request in cold] == [True, False]
    await fleet.finish()


async def test_when_the_first_fails_or_is_stopped_the_next_leads() -> None:
    fleet = Fleet()
    first, second, third, fourth = await fleet.ask(4, prefix="p")
    await fleet.end([first], Failure("dropped", "cut"))
    assert second.out and third.waits and fourth.waits
    second.task.cancel()
    await settle()
    assert third.out and fourth.waits
    third.gate.began()
    await settle()
    assert fourth.out
    await fleet.finish()


async def test_nobody_waits_longer_than_first_words_usually_take() -> None:
    fleet = Fleet()
    _, second = await fleet.ask(2, prefix="p")
    await fleet.clock.advance(1.9)
    assert second.waits
    await fleet.clock.advance(0.2)
    assert second.out
    await fleet.finish()
    for number in range(3):
        (leader,) = await fleet.ask(1, prefix=f"slow {number}")
        await fleet.clock.advance(4.0)
        leader.gate.began()
    _, patient = await fleet.ask(2, prefix="q")
    await fleet.clock.advance(5.9)
    assert patient.waits
    await fleet.clock.advance(0.2)
    assert patient.out
    await fleet.finish()


async def test_other_prefixes_and_providers_without_a_cache_do_not_wait() -> None:
    fleet = Fleet()
    await fleet.ask(1, prefix="p")
    assert [request.out for request in await fleet.ask(1, prefix="q")] == [True]
    assert all(request.out for request in await fleet.ask(5))
    assert all(request.out for request in await fleet.ask(5, provider="ollama", prefix="p"))
    await fleet.finish()


async def test_a_cancelled_follower_leaves_no_trace() -> None:
    fleet = Fleet()
    leader, *others = await fleet.ask(3, prefix="p")
    for request in others:
        request.task.cancel()
    await settle()
    assert fleet.state.waiting == 0
    await fleet.end([leader])
    assert (fleet.state.in_flight, fleet.clock.pending) == (0, 0)


async def test_after_a_refusal_starts_are_staggered_too() -> None:
    fleet = Fleet()
    first, *_ = await fleet.ask(8, prefix="p")
    await fleet.end([first], busy(retry_after=5.0))
    await fleet.clock.advance(5.1)
    assert fleet.out() == 1
    await fleet.finish()


TOOLS = (ToolSpec("read", "Reads a file. " * 200, {"type": "object"}),)
LONG = "You review code. " * 200
ANTHROPIC = Provider("anthropic", "anthropic", "https://api.anthropic.com", "key")


def test_the_key_of_a_prefix_changes_with_everything_in_it() -> None:
    key = shared_prefix(ANTHROPIC, "m", LONG, TOOLS)
    assert key is not None and key == shared_prefix(ANTHROPIC, "m", LONG, TOOLS)
    others = [
        shared_prefix(ANTHROPIC, "n", LONG, TOOLS),
        shared_prefix(ANTHROPIC, "m", LONG + ".", TOOLS),
        shared_prefix(ANTHROPIC, "m", LONG, TOOLS * 2),
    ]
    assert len({key, *others}) == 4


@pytest.mark.parametrize(
    ("provider", "system"),
    [
        (ANTHROPIC, "Short."),
        (ANTHROPIC._replace(base_url="http://127.0.0.1:8080"), LONG),
        (ANTHROPIC._replace(id="ollama"), LONG),
    ],
)
def test_where_no_cache_could_be_warmed_there_is_no_key(provider: Provider, system: str) -> None:
    assert shared_prefix(provider, "m", system, ()) is None
