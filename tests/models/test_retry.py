"""Retries without real time: who is asked again, when, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.core.events import Retrying as RetryingEvent
from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, Thinking, user
from retinue.core.outcome import TRANSIENT, Failure, FailureKind
from retinue.http.transport import Transport
from retinue.models.retry import RequestGate, RetryingModel, RetryPolicy
from retinue.testing import Finished, Model, ModelInfo, ModelRequest, Part
from tests.models.scripts import FORMATS, RELAXED, info, request, said, shared_model
from tests.models.servers import Reply, Server, failing
from tests.models.test_wire_faults import begun

ALL_KINDS: tuple[FailureKind, ...] = (
    "authentication", "rate_limit", "overloaded", "server", "context_overflow", "invalid_request", "not_found",
    "refused", "dropped", "timeout", "malformed", "length", "internal",
)  # fmt: skip


class Scripted:
    """Plays attempts: a text is an answer, a failure ends an attempt after its text."""

    info: ModelInfo = info("anthropic")

    def __init__(self, *attempts: tuple[str, Failure | None]) -> None:
        self.attempts = list(attempts)
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        text, failure = self.attempts.pop(0)
        try:
            for word in text.split():
                yield TextDelta(word)
            content = (Text(text.replace(" ", "")),) if text else ()
            yield Finished(AssistantMessage(content, "error" if failure else "end", failure=failure))
        finally:
            self.closed += 1

    async def close(self) -> None:
        self.closed += 100


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def run(
    inner: Model,
    time: Time,
    draw: float = 0.5,
    policy: RetryPolicy | None = None,
    asked: ModelRequest | None = None,
    **more: Any,
) -> list[Part]:
    retrying = RetryingModel(inner, policy, sleep=time.sleep, draw=lambda: draw, clock=lambda: time.now, **more)
    return [part async for part in retrying.stream(asked or request())]


def final(parts: list[Part]) -> AssistantMessage:
    assert isinstance(parts[-1], Finished)
    return parts[-1].message


async def test_success_needs_no_retry() -> None:
    parts = await run(Scripted(("hello you", None)), Time())
    assert parts[:2] == [TextDelta("hello"), TextDelta("you")] and final(parts).text == "helloyou"


async def test_what_was_shown_is_handed_on_when_it_becomes_void() -> None:
    dropped = Failure("dropped", "cut")
    parts = await run(Scripted(("half an", dropped), ("the whole answer", None)), Time())
    assert parts[2] == RetryingEvent(1, 0.875, dropped, partial="halfan", most=4)
    assert final(parts).text == "thewholeanswer" and final(parts).failure is None


async def test_delays_double_up_to_the_cap_with_a_quarter_of_jitter() -> None:
    time, failure = Time(), Failure("server", "oops")
    policy = RetryPolicy(attempts=6, max_delay_seconds=16.0)
    await run(Scripted(*[("", failure)] * 6), time, 1.0, policy)
    assert time.slept == [1.0, 2.0, 4.0, 8.0, 16.0]
    time = Time()
    await run(Scripted(*[("", failure)] * 6), time, 0.0, policy)
    assert time.slept == [0.75, 1.5, 3.0, 6.0, 12.0]


class Storm(Scripted):
    """Fails for so many seconds of a clock, then answers."""

    def __init__(self, time: Time, seconds: float, failure: Failure) -> None:
        super().__init__()
        self.time, self.seconds, self.failure = time, seconds, failure

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        if self.time.now < self.seconds:
            yield Finished(AssistantMessage((), "error", failure=self.failure))
        else:
            yield Finished(AssistantMessage((Text("ok"),)))


@pytest.mark.parametrize("draw", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["server", "overloaded", "rate_limit"])
async def test_a_storm_of_ten_minutes_is_survived(kind: FailureKind, draw: float) -> None:
    time = Time()
    parts = await run(Storm(time, 600.0, Failure(kind, "x")), time, draw)
    assert final(parts).text == "ok"
    assert time.now < 1000.0


@pytest.mark.parametrize("draw", [0.0, 1.0])
async def test_a_network_that_goes_away_for_ten_minutes_is_survived_by_a_run_that_had_answers(draw: float) -> None:
    time = Time()
    storm = Storm(time, 0.0, Failure("dropped", "no route"))
    retrying = RetryingModel(storm, sleep=time.sleep, draw=lambda: draw, clock=lambda: time.now)
    assert final([part async for part in retrying.stream(request())]).text == "ok"
    storm.seconds = 600.0
    assert final([part async for part in retrying.stream(request())]).text == "ok"


async def test_a_server_that_never_answered_is_given_up_soon() -> None:
    time = Time()
    parts = await run(Storm(time, 600.0, Failure("dropped", "connection refused")), time, 1.0)
    assert time.slept == [1.0, 2.0, 4.0]
    assert (final(parts).failure or Failure("internal", "")).message.endswith("(tried 4 times)")


@pytest.mark.parametrize(("kind", "most"), [("server", 15), ("dropped", 4)])
async def test_each_announcement_says_how_many_attempts_there_are_at_most(kind: FailureKind, most: int) -> None:
    time = Time()
    parts = await run(Storm(time, 10_000.0, Failure(kind, "x")), time, 1.0)
    announced = [part for part in parts if isinstance(part, RetryingEvent)]
    assert [part.most for part in announced] == [most] * (most - 1)
    assert (final(parts).failure or Failure("internal", "")).message.endswith(f"(tried {most} times)")


async def test_the_announced_wait_is_the_gates_when_that_is_longer() -> None:
    class Gate(RequestGate):
        def held(self) -> float:
            return 42.0

    time = Time()
    parts = await run(Scripted(("", Failure("overloaded", "x")), ("ok", None)), time, gate=Gate())
    assert isinstance(parts[0], RetryingEvent) and parts[0].delay == 42.0
    assert time.slept == [42.0]


async def test_retry_after_is_honoured_with_jitter_on_top() -> None:
    time = Time()
    await run(Scripted(("", Failure("rate_limit", "slow", retry_after=10.0)), ("ok", None)), time, 0.5)
    assert time.slept == [10.5]


async def test_a_wait_beyond_the_limit_ends_at_once() -> None:
    time = Time()
    parts = await run(Scripted(("", Failure("rate_limit", "slow", retry_after=3600.0))), time)
    assert time.slept == [] and final(parts).failure is not None
    late = Failure("overloaded", "x", retry_after=50.0)
    await run(Scripted(*[("", late)] * 5), time, 0.0, RetryPolicy(total_seconds=120.0))
    assert time.slept == [50.0, 50.0]


async def test_after_the_last_failure_the_longest_text_stays() -> None:
    failure = Failure("dropped", "cut")
    inner = Scripted(("a", failure), ("the longest of all", failure), ("b c", failure), ("", failure), ("x", failure))
    message = final(await run(inner, Time(), policy=RetryPolicy(attempts=5, first_contact_attempts=5)))
    assert (message.stop, message.text) == ("error", "thelongestofall")
    assert message.failure is not None and "tried 5 times" in message.failure.message and inner.closed == 5


async def test_a_server_that_has_never_answered_is_tried_four_times() -> None:
    inner = Scripted(*[("", Failure("dropped", "no answer"))] * 15)
    await run(inner, Time())
    assert inner.closed == 4


async def test_a_server_that_has_answered_the_conversation_is_waited_for_ten_minutes() -> None:
    time = Time()
    storm = Storm(time, 600.0, Failure("dropped", "connection refused"))
    retrying = RetryingModel(storm, sleep=time.sleep, draw=lambda: 0.5, clock=lambda: time.now)
    asked, again = request().messages[0], user("And now?")
    answer = AssistantMessage((Text("Hello."),), "end", model=storm.info.full_name)
    later = replace(request(), messages=(asked, answer, again))
    assert final([part async for part in retrying.stream(later)]).text == "ok"
    # What another model has said, or what was never said, tells nothing of this server.
    for told in (replace(answer, model="other/model"), replace(answer, failure=Failure("dropped", "cut"))):
        parts = await run(
            Storm(Time(), 600.0, Failure("dropped", "x")), Time(), asked=replace(later, messages=(asked, told, again))
        )
        assert (final(parts).failure or Failure("internal", "")).message.endswith("(tried 4 times)")


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_only_passing_failures_are_retried(kind: FailureKind) -> None:
    time = Time()
    parts = await run(Scripted(("", Failure(kind, "x")), ("ok", None)), time)
    assert (final(parts).text == "ok") == (kind in TRANSIENT)


async def test_a_refusal_is_an_answer() -> None:
    class Refusing(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
            self.closed += 1
            yield Finished(AssistantMessage((), "refusal", failure=Failure("refused", "no")))

    inner = Refusing()
    assert final(await run(inner, Time())).stop == "refusal" and inner.closed == 1


async def test_a_stream_without_an_end_counts_as_dropped() -> None:
    class Endless(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
            self.closed += 1
            if self.closed > 1:
                yield Finished(AssistantMessage((Thinking("x"), Text("ok"))))
            else:
                yield TextDelta("partial")

    parts = await run(Endless(), Time())
    assert isinstance(parts[1], RetryingEvent) and parts[1].failure.kind == "dropped" and parts[1].partial == "partial"


async def test_the_gate_stands_before_and_after_every_attempt() -> None:
    class Gate(RequestGate):
        def __init__(self) -> None:
            self.calls: list[str] = []

        async def before(self) -> None:
            self.calls.append("before")

        async def after(self, failure: Failure | None) -> None:
            self.calls.append(failure.kind if failure else "fine")

    gate = Gate()
    await run(Scripted(("", Failure("overloaded", "x")), ("ok", None)), Time(), gate=gate)
    assert gate.calls == ["before", "overloaded", "before", "fine"]
    gate = Gate()
    inner = Scripted(("a b c", None))
    async with aclosing(RetryingModel(inner, gate=gate).stream(request())) as stream:
        async for _ in stream:
            break
    assert gate.calls == ["before", "fine"] and inner.closed == 1


async def test_closing_closes_the_model() -> None:
    inner = Scripted()
    await RetryingModel(inner).close()
    assert inner.closed == 100


async def test_cancelling_while_waiting() -> None:
    waiting = asyncio.Event()

    async def sleep(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def consume() -> None:
        async for _ in RetryingModel(Scripted(("", Failure("server", "x"))), sleep=sleep).stream(request()):
            pass

    task = asyncio.create_task(consume())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@RELAXED
@given(
    st.integers(1, 60),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 1e6),
    st.sampled_from(ALL_KINDS),
)
def test_no_delay_is_negative_or_longer_than_promised(
    failed: int, draw: float, asked: float | None, kind: FailureKind
) -> None:
    policy = RetryPolicy(attempts=50)
    wait = policy.delay(failed, Failure(kind, "x", retry_after=asked), lambda: draw)
    if wait is not None:
        assert kind in TRANSIENT and failed < 50
        assert (asked or 0.0) <= wait <= (asked or 0.0) + policy.max_delay_seconds
        assert asked is None or asked <= policy.max_retry_after_seconds


# ------------------------------------------------------------------ over HTTP
@pytest.mark.parametrize("provider", FORMATS)
async def test_a_burst_of_529_a_500_a_429_and_a_cut_stream_are_survived(provider: str) -> None:
    busy = failing(529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, retry_after="1")
    cut = Reply([*begun(provider, "Only half of it"), "cut"])
    replies = [busy, busy, failing(500, {"error": {"message": "oops"}}), failing(429, {}, retry_after="2"), cut]
    async with Server(*replies, Reply(said(provider, "The answer."))) as server:
        time, transport = Time(), Transport()
        policy = RetryPolicy(attempts=6)
        parts = await run(shared_model(provider, server.url, transport), time, 0.0, policy)
        await transport.close()
    assert final(parts).text == "The answer." and final(parts).failure is None
    assert time.slept == [1.0, 1.0, 3.0, 2.0, 12.0]
    kinds = [part.failure.kind for part in parts if isinstance(part, RetryingEvent)]
    assert kinds == ["overloaded", "overloaded", "server", "rate_limit", "dropped"]
