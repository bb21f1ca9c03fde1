"""The limiter of an account (D13, bug 32 of §5.2, ask 16 of part 7), without real time."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from retinue.core.messages import AssistantMessage, Text
from retinue.core.outcome import Failure, FailureKind
from retinue.models.limiter import Limiters, account_of, process_limiters
from retinue.models.retry import RetryingModel
from retinue.testing import FakeClock, Finished, ModelInfo, ModelRequest, Part, settle
from tests.models.limiter_fleet import Fleet, busy

REQUEST = ModelRequest(system="s", messages=())


async def test_while_nothing_is_wrong_nobody_waits_and_no_timer_runs() -> None:
    fleet = Fleet()
    requests = await fleet.ask(500)
    assert fleet.out() == 500 and fleet.clock.pending == 0
    await fleet.end(requests)
    assert (fleet.state.in_flight, fleet.state.limit, fleet.clock.pending) == (0, math.inf, 0)


async def test_retry_after_holds_everyone_until_then() -> None:
    fleet = Fleet()
    first, *others = await fleet.ask(3)
    await fleet.end([first], busy(retry_after=20.0))
    await fleet.ask(5)
    await fleet.clock.advance(19.9)
    assert fleet.out() == 2, "only those that were already on their way"
    await fleet.end(others)
    await fleet.clock.advance(0.2)
    assert fleet.out() == 1, "one goes ahead to see whether the door is open"
    await fleet.finish()
    assert fleet.sent == [f"r{number}" for number in range(8)], "first come, first served"


async def test_bug_32_children_do_not_come_back_in_lockstep() -> None:
    fleet = Fleet(draw=random.Random(4).random)
    await fleet.end(await fleet.ask(64), busy(retry_after=1.0))
    await fleet.ask(64)
    moments: list[float] = []
    for _ in range(400):
        await fleet.clock.advance(0.01)
        await fleet.end([request for request in fleet.requests if request.out])
        moments += [fleet.clock.monotonic()] * (len(fleet.sent) - 64 - len(moments))
    assert len(moments) == 64
    assert moments[0] >= 1.0, "nobody before the Retry-After"
    assert max(moments.count(moment) for moment in moments) <= 4, "spread out"


async def test_a_burst_of_refusals_halves_once() -> None:
    fleet = Fleet()
    requests = await fleet.ask(64)
    await fleet.end(requests[:60], busy())
    assert fleet.state.limit == 32
    await fleet.end(requests[60:], busy())
    assert fleet.state.limit == 32, "what was sent before the cut says nothing new"


async def test_a_refused_probe_means_a_longer_pause_for_all() -> None:
    fleet = Fleet(draw=lambda: 0.5)
    await fleet.end(await fleet.ask(8), busy())
    await fleet.ask(8)
    pauses = []
    for _ in range(7):
        pauses.append(round(fleet.state.held_seconds, 3))
        await fleet.clock.advance(fleet.state.held_seconds)
        out = [request for request in fleet.requests if request.out]
        assert len(out) == 1
        await fleet.end(out, busy())
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert fleet.state.limit == 1, "never below one"
    await fleet.finish()


async def test_answers_raise_the_limit_one_by_one_and_quiet_minutes_lift_it() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(20), busy(retry_after=0.0))
    await fleet.ask(100)
    assert fleet.state.limit == 10
    seen = [10]
    for _ in range(200):
        await fleet.clock.advance(0.5)
        await fleet.end([request for request in fleet.requests if request.out][:1])
        seen.append(fleet.state.limit or 0)
    steps = [later - earlier for earlier, later in pairwise(seen)]
    assert set(steps) == {0, 1} and seen[-1] > 15
    await fleet.finish()
    await fleet.clock.advance(301)
    await fleet.ask(50)
    assert (fleet.out(), fleet.state.limit) == (50, math.inf)
    await fleet.finish()


async def test_a_limit_that_is_not_used_does_not_grow() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(20), busy(retry_after=0.0))
    for _ in range(50):
        await fleet.clock.advance(1.0)
        await fleet.end(await fleet.ask(1))
    assert fleet.state.limit == 10


@pytest.mark.parametrize("kind", ["server", "dropped", "timeout", "malformed", "invalid_request", "authentication"])
async def test_other_failures_limit_nobody(kind: FailureKind) -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(10), Failure(kind, "x"))
    await fleet.ask(10)
    assert fleet.out() == 10
    await fleet.finish()


async def test_a_server_error_with_retry_after_holds_but_does_not_cut() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(4), Failure("server", "x", retry_after=5.0))
    await fleet.ask(4)
    assert (fleet.out(), fleet.state.limit) == (0, math.inf)
    await fleet.clock.advance(5.2)
    assert fleet.out() == 1
    await fleet.finish()


@pytest.mark.parametrize("after", [float("nan"), -5.0, float("inf"), 1e9])
async def test_nonsense_in_retry_after_never_blocks_for_more_than_an_hour(after: float) -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(1), busy(retry_after=after))
    assert 0 <= fleet.state.held_seconds <= 3_600
    await fleet.clock.advance(3_601)
    await fleet.ask(1)
    assert fleet.out() == 1
    await fleet.finish()


async def test_accounts_are_limited_apart_and_one_key_together() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(2, provider="openai"), busy(retry_after=30.0))
    assert [request.out for request in await fleet.ask(1, provider="openai", account="you")] == [True]
    assert [request.out for request in await fleet.ask(1, provider="anthropic")] == [True]
    assert [request.waits for request in await fleet.ask(1, provider="openai-responses")] == [True]
    await fleet.finish()


async def test_a_probe_that_is_cancelled_or_lost_makes_room_for_the_next() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(4), busy(retry_after=1.0))
    probe, second, third = await fleet.ask(3)
    await fleet.clock.advance(1.1)
    assert probe.out and second.waits
    probe.task.cancel()
    await settle()
    assert second.out and third.waits
    await fleet.end([second], Failure("dropped", "cut"))
    assert third.out
    await fleet.finish()


async def test_a_probe_that_hangs_does_not_stop_the_fleet() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(8), busy(retry_after=1.0))
    await fleet.ask(4)
    await fleet.clock.advance(1.1)
    assert fleet.out() == 1
    await fleet.clock.advance(6.5)
    assert fleet.out() == 4
    await fleet.finish()


async def test_the_first_word_of_the_probe_opens_the_door() -> None:
    fleet = Fleet()
    await fleet.end(await fleet.ask(8), busy(retry_after=1.0))
    probe, *_ = await fleet.ask(4)
    await fleet.clock.advance(1.1)
    probe.gate.began()
    await settle()
    assert fleet.out() == 4
    await fleet.finish()


async def test_a_door_closed_for_long_is_not_waited_for() -> None:
    fleet = Fleet()
    late, *_ = first = await fleet.ask(2)
    await fleet.end([late], busy(retry_after=60.0))
    (queued,) = await fleet.ask(1)
    await fleet.end([first[1]], busy(retry_after=900.0))
    assert queued.closed is not None and queued.closed.kind == "rate_limit"
    (later,) = await fleet.ask(1)
    assert later.closed is not None and "15m" in later.closed.message
    assert fleet.sent == ["r0", "r1"] and fleet.state.in_flight == 0 and fleet.clock.pending == 0


async def test_while_a_run_waits_its_idle_clock_can_stand_still() -> None:
    fleet, marks = Fleet(), []

    @contextmanager
    def waiting() -> Iterator[None]:
        marks.append("waits")
        yield
        marks.append("goes")

    gate = fleet.limiters.gate_for("anthropic", "me", waiting=waiting)
    await gate.before()
    assert marks == []
    await gate.after(busy(retry_after=10.0))
    await fleet.ask(1, gate=gate)
    assert marks == ["waits"]
    await fleet.clock.advance(11)
    assert marks == ["waits", "goes"]
    await fleet.finish()


def test_the_account_tells_neither_key_nor_address() -> None:
    from retinue.models.providers import Provider

    one = Provider("anthropic", "anthropic", "https://a.example", "sk-secret")
    assert account_of(one) == account_of(one._replace(custom=True))
    assert len({account_of(one), account_of(one._replace(api_key="k")), account_of(one._replace(base_url="u"))}) == 3
    assert "secret" not in account_of(one)


async def test_everything_on_one_event_loop_shares_its_limiters() -> None:
    assert process_limiters() is process_limiters()


# ---------------------------------------------------------------- the whole fleet, with retries


class Provider:
    """A provider that takes `capacity` requests at once, each for half a second."""

    info = ModelInfo("anthropic", "m")

    def __init__(self, clock: FakeClock, capacity: int, retry_after: float | None) -> None:
        self.clock, self.capacity, self.retry_after = clock, capacity, retry_after
        self.at_once = self.most = self.taken = self.refused = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        if self.at_once >= self.capacity:
            self.refused += 1
            yield Finished(AssistantMessage((), "error", failure=busy(self.retry_after)))
            return
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.clock.sleep(0.5)
            self.taken += 1
            yield Finished(AssistantMessage((Text("ok"),)))
        finally:
            self.at_once -= 1

    async def close(self) -> None: ...


@pytest.mark.parametrize("retry_after", [None, 2.0])
async def test_CC_68968_a_fan_out_into_a_small_quota_loses_nobody(retry_after: float | None) -> None:
    clock, chance = FakeClock(), random.Random(7)
    provider = Provider(clock, 6, retry_after)
    limiters = Limiters(clock=clock, draw=chance.random)
    failures: list[Failure | None] = []

    async def agent() -> None:
        gate = limiters.gate_for("anthropic", "me")
        model = RetryingModel(provider, gate=gate, sleep=clock.sleep, draw=chance.random, clock=clock.monotonic)
        for _ in range(3):
            parts = [part async for part in model.stream(REQUEST)]
            assert isinstance(parts[-1], Finished)
            failures.append(parts[-1].message.failure)

    agents = [asyncio.create_task(agent()) for _ in range(60)]
    for _ in range(600):
        await clock.advance(0.5)
        if all(task.done() for task in agents):
            break
    await asyncio.gather(*agents)
    assert failures == [None] * 180
    ideal = 180 / 6 * 0.5
    assert clock.monotonic() <= 8 * ideal, "slower than the quota by much"
    assert provider.refused <= 54 + 60, "after the first burst few are refused"


async def test_what_another_process_was_told_is_kept_and_not_told_again() -> None:
    clock = FakeClock()
    one, other = Limiters(clock=clock, draw=lambda: 0.0), Limiters(clock=clock, draw=lambda: 0.0)
    gate = one.gate_for("anthropic", "account")
    assert await gate.before() is None
    await gate.after(Failure("rate_limit", "too many", "", retry_after=20.0))
    ((name, seconds),) = one.own_holds().items()
    assert seconds == pytest.approx(20.0, abs=0.1)
    other.hold(name, seconds)
    assert other.own_holds() == {}
    assert other.gate_for("anthropic", "account").held() == pytest.approx(seconds)
    assert other.gate_for("anthropic", "another").held() == 0.0
    # Hearing of less changes nothing.
    other.hold(name, seconds - 5)
    assert other.gate_for("anthropic", "account").held() == pytest.approx(seconds)
