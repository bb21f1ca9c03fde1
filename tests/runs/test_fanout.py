"""Consent before very many agents (ask 22 of part 7; CC #66023, #67343: 46 to 70 unasked)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from retinue.errors import StateError
from retinue.runs.fanout import Ask, FanOut, Quote, QuotedAgent, free_agents
from retinue.settings.field import Origin
from retinue.settings.table import Settings
from retinue.testing import FakeClock, ModelInfo, settle

WANTED = QuotedAgent("reviewer", ModelInfo("a", "m"))


def made(wanted: Sequence[QuotedAgent]) -> Quote:
    return Quote(f"{len(wanted)} agents, about $5.", len(wanted))


class Person:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked: list[Quote] = []
        self.answers: list[asyncio.Future[bool]] = []

    async def ask(self, quote: Quote) -> bool:
        self.asked.append(quote)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


class Run:
    def __init__(self, above: int | None, ask: Ask | None = None) -> None:
        self.clock = FakeClock()
        self.fanout = FanOut(above, made, ask=ask, clock=self.clock)

    async def spawn(self, count: int) -> list[asyncio.Task[str | None]]:
        tasks = [asyncio.create_task(self.fanout.admit(WANTED)) for _ in range(count)]
        await self.clock.advance(0.1)
        return tasks


def outcomes(tasks: list[asyncio.Task[str | None]]) -> list[str | None]:
    return [task.result() if task.done() else "waits" for task in tasks]


async def test_CC_66023_headless_the_agents_above_the_threshold_are_refused_with_a_way_out() -> None:
    run = Run(16)
    assert outcomes(await run.spawn(16)) == [None] * 16
    refusals = outcomes(await run.spawn(30))
    assert len(set(refusals)) == 1
    (text,) = set(refusals)
    assert text is not None and text.startswith("Not started: this run has already started 16 agents")
    assert "30 agents, about $5." in text and "quoteAbove 0" in text and "Do not try again" in text
    assert outcomes(await run.spawn(1)) == [text], "it stays refused without being estimated again"
    assert run.fanout.started == 16 and run.clock.pending == 0


async def test_without_a_threshold_everything_starts() -> None:
    run = Run(None)
    assert outcomes(await run.spawn(100)) == [None] * 100


async def test_a_person_is_asked_once_for_all_that_are_wanted_at_once() -> None:
    person = Person()
    run = Run(4, person.ask)
    tasks = await run.spawn(14)
    assert outcomes(tasks) == [None] * 4 + ["waits"] * 10
    assert [quote.agents for quote in person.asked] == [10]
    person.answers[0].set_result(True)
    await settle()
    assert outcomes(tasks) == [None] * 14
    assert outcomes(await run.spawn(4)) == [None] * 4, "yes covers as many again"
    assert outcomes(await run.spawn(1)) == ["waits"] and len(person.asked) == 2
    person.answers[1].set_result(False)
    await settle()


async def test_no_stands_for_the_rest_of_the_run() -> None:
    person = Person()
    run = Run(1, person.ask)
    tasks = await run.spawn(3)
    late = await run.spawn(2)
    person.answers[0].set_result(False)
    await settle()
    assert outcomes(tasks)[0] is None
    refusals = outcomes(tasks)[1:] + outcomes(late) + outcomes(await run.spawn(1))
    assert all(text is not None and "declined" in text for text in refusals)
    assert len(person.asked) == 1 and run.fanout.started == 1


async def test_those_who_come_while_a_person_thinks_wait_for_the_same_answer() -> None:
    person = Person()
    run = Run(2, person.ask)
    first = await run.spawn(3)
    late = await run.spawn(5)
    assert len(person.asked) == 1
    person.answers[0].set_result(True)
    await settle()
    assert outcomes(first) == [None] * 3
    assert outcomes(late) == [None, None, "waits", "waits", "waits"], "one was asked for, and two more come with it"
    await run.clock.advance(0.1)
    assert [quote.agents for quote in person.asked] == [1, 3]
    person.answers[1].set_result(True)
    await settle()
    assert outcomes(late) == [None] * 5


async def test_when_nobody_wants_them_any_more_the_question_is_withdrawn() -> None:
    person = Person()
    run = Run(1, person.ask)
    tasks = await run.spawn(3)
    for task in tasks[1:]:
        task.cancel()
    await settle()
    assert person.answers[0].cancelled() and run.fanout.started == 1 and run.clock.pending == 0
    assert outcomes(await run.spawn(1)) == ["waits"], "nothing was declined"
    assert len(person.asked) == 2


async def test_cancelled_before_anyone_was_asked() -> None:
    person = Person()
    run = Run(1, person.ask)
    tasks = [asyncio.create_task(run.fanout.admit(WANTED)) for _ in range(3)]
    await settle()
    for task in tasks:
        task.cancel()
    await run.clock.advance(1.0)
    assert person.asked == [] and run.clock.pending == 0


async def test_a_person_who_cannot_be_asked_has_not_agreed() -> None:
    async def broken(_: Quote) -> bool:
        raise RuntimeError("the inbox is on fire")

    run = Run(1, broken)
    assert [text is None for text in outcomes(await run.spawn(2))] == [True, False]


async def test_an_estimate_that_fails_does_not_leave_anyone_waiting() -> None:
    def broken(_: Sequence[QuotedAgent]) -> Quote:
        raise StateError("The log is gone.")

    run = Run(1)
    run.fanout = FanOut(1, broken, clock=run.clock)
    text = outcomes(await run.spawn(2))[1]
    assert text is not None and "The log is gone." in text


@pytest.mark.parametrize(
    ("said", "origin", "there", "alone"),
    [
        (1_000, "default", 32, 1_000),
        (5, "user", 5, 5),
        (2_000, "user", 2_000, 2_000),
        (None, "flag", None, None),
        (5, "project", 5, 5),
        (2_000, "project", 32, 1_000),
        (None, "local", 32, 1_000),
    ],
)
def test_a_person_is_asked_early_and_a_repository_can_only_lower_the_number(said, origin, there, alone):
    settings = Settings({"quote_above": said}, {"quote_above": Origin(origin, "x")})
    assert free_agents(settings, can_ask=True) == there
    assert free_agents(settings, can_ask=False) == alone
