"""One limiter for each account at a provider, shared by every run of the process.

A run passes its gate before each request. While nothing is wrong that costs a few microseconds and
starts no task, thread or timer. A refusal that one run meets is respected by all: how long and how many
at once is decided by `limiter_pace`; here is the queue. Requests go in the order they came, and one that
is cancelled at any moment returns its place or its slot.

Processes do not tell one another what they learned: each meets the provider's refusal itself and then
keeps `Retry-After`. Sharing it would save each of them one request per refusal and no time (docs/models.md has
the figures). Only workers of a cluster do, which are many: `told` and `hear`.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.core.format import format_wait
from retinue.core.outcome import Failure, FailureKind
from retinue.core.tool import ToolSpec
from retinue.models.limiter_pace import WARM_SECONDS, Pace, Prefix, Prefixes

if TYPE_CHECKING:
    from retinue.models.provider import Provider

CACHING = frozenset(
    {"anthropic", "openai", "openai-responses", "azure", "gemini", "deepseek", "xai", "moonshot", "openrouter"}
)
"""Providers that cache prompts."""
LEAST_TOKENS = 1_024
"""No provider caches shorter prompts."""
LONGEST_CLOSED = 600.0
"""A provider that closes for longer is not waited for: the request fails, and says until when."""
BUSY: frozenset[FailureKind] = frozenset({"rate_limit", "overloaded"})
_NO_ANSWER: frozenset[FailureKind] = frozenset({"server", "dropped", "timeout", "internal", "stopped"})

Waiting = Callable[[], AbstractContextManager[None]]


class _Waiter:
    """One waiting request. `place` is done when it may go, or will not."""

    __slots__ = ("followed", "gate", "number", "place")

    def __init__(self, number: int, gate: LimiterGate) -> None:
        self.number = number
        self.gate = gate
        self.followed = False
        self.place: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()

    def __lt__(self, other: _Waiter) -> bool:
        return self.number < other.number


class LimiterGate:
    """The gate of one run (`retinue.models.retry.Gate`). `waiting` is entered while the run has
    to wait, so that its idle clock can stand still."""

    __slots__ = ("_limiter", "begun", "out", "prefix", "sent_at", "waiting")

    def __init__(self, limiter: Limiter, prefix: Prefix[_Waiter] | None, waiting: Waiting | None) -> None:
        self._limiter = limiter
        self.prefix = prefix
        self.waiting: Waiting = waiting or nullcontext
        self.out = 0
        self.sent_at = 0.0
        self.begun = False

    async def before(self) -> Failure | None:
        """Return when the request may be sent. A failure means that it must not be."""
        if self._limiter.enter(self):
            return None
        with self.waiting():
            return await self._limiter.wait(self)

    def began(self) -> None:
        """Note that the first part of the answer is here."""
        if self.out and not self.begun:
            self.begun = True
            self._limiter.answered(self)

    def held(self) -> float:
        """Return for how many seconds no request of this account is admitted."""
        return self._limiter.state().held_seconds

    async def after(self, failure: Failure | None) -> None:
        """The request is over. Called while its task is being cancelled, nothing is learned."""
        task = asyncio.current_task()
        self._limiter.leave(self, failure, cut=task is not None and task.cancelling() > 0)


class LimiterState(Struct, frozen=True):
    """`limit` None: any number at once. `held_seconds`: no request is sent for so long."""

    provider: str
    in_flight: int
    waiting: int
    limit: int | None
    held_seconds: float


class Limiter:
    """One account. Requests wait in order of arrival; those behind a leader keep their place."""

    def __init__(self, provider: str, clock: Clock, draw: Callable[[], float]) -> None:
        self.provider = provider
        self.prefixes: Prefixes[_Waiter] = Prefixes()
        self._clock = clock
        self._pace = Pace(draw)
        self._in_flight = 0
        self._numbers = 0
        self._queue: list[_Waiter] = []
        self._timer: Timer | None = None
        self._due = math.inf
        self._told_until = 0.0
        """Until when the provider has told this process to wait."""

    @property
    def told_seconds(self) -> float:
        return max(self._told_until - self._clock.monotonic(), 0.0)

    def hear(self, seconds: float) -> None:
        """Wait as another process was told to."""
        now = self._clock.monotonic()
        self._pace.hold(now, now + seconds)

    def state(self) -> LimiterState:
        pace = self._pace
        limit = None
        if pace.limit != math.inf:
            limit = int(pace.limit)
        return LimiterState(
            provider=self.provider,
            in_flight=self._in_flight,
            waiting=sum(not waiter.place.done() for waiter in (*self._queue, *self.prefixes.followers())),
            limit=limit,
            held_seconds=max(pace.held_until - self._clock.monotonic(), 0.0),
        )

    # Going in

    def enter(self, gate: LimiterGate) -> bool:
        """Let a request go at once if nothing stands in its way."""
        now = self._clock.monotonic()
        if self._queue or self._pace.delay(now, self._in_flight) != 0.0:
            return False
        prefix = gate.prefix
        if prefix is not None and self._has_leader(prefix, now):
            return False
        self._grant(gate, now)
        return True

    async def wait(self, gate: LimiterGate) -> Failure | None:
        self._numbers += 1
        waiter = _Waiter(self._numbers, gate)
        heapq.heappush(self._queue, waiter)
        self._admit()
        try:
            return await waiter.place
        except asyncio.CancelledError:
            if not waiter.place.cancelled() and waiter.place.result() is None:
                # It had been let in before it could know.
                self.leave(gate, None, cut=True)
            else:
                self._admit()
            raise

    def _grant(self, gate: LimiterGate, now: float) -> None:
        self._in_flight += 1
        self._pace.sent(now)
        gate.out += 1
        gate.sent_at = now
        gate.begun = False
        prefix = gate.prefix
        if prefix is not None and prefix.leader is None and now >= prefix.warm_until:
            prefix.leader, prefix.led_at = gate, now

    def _admit(self) -> None:
        """Admit every request that may go; arrange to look again when time alone can change that."""
        now = self._clock.monotonic()
        while self._queue:
            waiter = self._queue[0]
            if waiter.place.done():
                heapq.heappop(self._queue)
                continue
            delay = self._pace.delay(now, self._in_flight)
            if delay is None:
                break
            if delay > 0.0:
                self._wait_for(delay, now)
                return
            heapq.heappop(self._queue)
            prefix = waiter.gate.prefix
            if prefix is not None and not waiter.followed and self._has_leader(prefix, now):
                self._follow(prefix, waiter, now)
            else:
                self._grant(waiter.gate, now)
                waiter.place.set_result(None)
        self._cancel_timer()

    def _wait_for(self, delay: float, now: float) -> None:
        if delay > LONGEST_CLOSED:
            queue, self._queue = self._queue, []
            failure = self._closed(delay)
            for waiter in queue:
                if not waiter.place.done():
                    waiter.place.set_result(failure)
            self._cancel_timer()
        elif self._timer is None or now + delay < self._due:
            self._cancel_timer()
            self._due = now + delay
            self._timer = self._clock.call_later(delay, self._look_again)

    def _look_again(self) -> None:
        self._timer, self._due = None, math.inf
        self._admit()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due = None, math.inf

    def _closed(self, seconds: float) -> Failure:
        return Failure(
            "rate_limit",
            f"{self.provider} takes no requests of this account for another {format_wait(seconds)}.",
            "Resume the run then, or use another key or model.",
            retry_after=seconds,
        )

    # Coming out

    def answered(self, gate: LimiterGate) -> None:
        now = self._clock.monotonic()
        self._pace.answered(now, gate.sent_at, self._in_flight)
        prefix = gate.prefix
        if prefix is not None:
            prefix.warm_until = now + WARM_SECONDS
            if prefix.leader is gate:
                self.prefixes.note_first_word(now - prefix.led_at)
            if prefix.leader is not None:
                self._release(prefix)
        if self._queue:
            self._admit()

    def leave(self, gate: LimiterGate, failure: Failure | None, *, cut: bool) -> None:
        if not gate.out:
            return
        gate.out -= 1
        if failure is None and not cut and not gate.begun:
            gate.begun = True
            self.answered(gate)
        elif failure is not None or not gate.begun:
            self._learn(gate, failure)
        self._in_flight -= 1
        prefix = gate.prefix
        if prefix is not None and prefix.leader is gate:
            self._release(prefix, followed=False)
        if self._queue:
            self._admit()

    def _learn(self, gate: LimiterGate, failure: Failure | None) -> None:
        now = self._clock.monotonic()
        if failure is None or (failure.kind in _NO_ANSWER and failure.retry_after is None):
            self._pace.lost(gate.sent_at)
        elif failure.kind not in BUSY and failure.retry_after is None:
            self._pace.answered(now, gate.sent_at, self._in_flight)
        else:
            self._pace.refused(now, gate.sent_at, self._in_flight, failure.retry_after, busy=failure.kind in BUSY)
            self._told_until = self._pace.held_until

    # Behind a leader

    def _has_leader(self, prefix: Prefix[_Waiter], now: float) -> bool:
        """Return whether another request is about to warm this prefix."""
        if prefix.leader is None or now < prefix.warm_until:
            return False
        return now < prefix.led_at + self.prefixes.longest_wait()

    def _follow(self, prefix: Prefix[_Waiter], waiter: _Waiter, now: float) -> None:
        prefix.followers.append(waiter)
        if prefix.timer is None:
            seconds = prefix.led_at + self.prefixes.longest_wait() - now

            def stop_following() -> None:
                # The leader takes too long: all followers go, though the cache may be cold.
                self._release(prefix)
                self._admit()

            prefix.timer = self._clock.call_later(seconds, stop_following)

    def _release(self, prefix: Prefix[_Waiter], *, followed: bool = True) -> None:
        """End a lead. With `followed` the others need not follow anyone again; without, the
        first of them leads."""
        if prefix.timer is not None:
            prefix.timer.cancel()
            prefix.timer = None
        prefix.leader = None
        followers, prefix.followers = prefix.followers, []
        for waiter in followers:
            waiter.followed = followed
            heapq.heappush(self._queue, waiter)


class Limiters:
    """Every account of this process. Use from one event loop."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, draw: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._draw = draw
        self._limiters: dict[tuple[str, str], Limiter] = {}

    def gate_for(
        self, provider_id: str, account: str, prefix_key: str | None = None, *, waiting: Waiting | None = None
    ) -> LimiterGate:
        """Return the gate for one run. `prefix_key` (see `shared_prefix`) staggers cold starts at
        providers that cache."""
        # One key, one quota, two wire formats.
        limiter = self._limiter(provider_id.removesuffix("-responses"), account)
        prefix = None
        if prefix_key is not None and provider_id in CACHING:
            prefix = limiter.prefixes.get(prefix_key, self._clock.monotonic())
        return LimiterGate(limiter, prefix, waiting)

    def _limiter(self, family: str, account: str) -> Limiter:
        limiter = self._limiters.get((family, account))
        if limiter is None:
            limiter = self._limiters[family, account] = Limiter(family, self._clock, self._draw)
        return limiter

    def told(self) -> dict[str, float]:
        """Return for how many seconds each account was told to wait, by a name for other processes. What was only
        heard from others is not told again."""
        found = {f"{family} {account}": limiter.told_seconds for (family, account), limiter in self._limiters.items()}
        return {name: seconds for name, seconds in found.items() if seconds > 0.0}

    def hear(self, name: str, seconds: float) -> None:
        """Let an account wait as another process was told to."""
        family, _, account = name.partition(" ")
        self._limiter(family, account).hear(seconds)

    def states(self) -> list[LimiterState]:
        """Return the state of every account, for people."""
        return [limiter.state() for limiter in self._limiters.values()]


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, Limiters] = WeakKeyDictionary()


def process_limiters() -> Limiters:
    """Return the limiters that everything on the running event loop shares, whatever its project."""
    return _OF_LOOP.setdefault(asyncio.get_running_loop(), Limiters())


def account_of(provider: Provider) -> str:
    """Return who pays at a provider: a digest of key and address, from which neither can be read."""
    text = f"{provider.api_key}{provider.helper or ''}\0{provider.base_url}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=12).hexdigest()


def shared_prefix(provider: Provider, model: str, system: str, tools: Sequence[ToolSpec]) -> str | None:
    """Return the key of what every request of a run begins with; None where waiting for a warm cache
    could not pay: the provider has none, it is this machine, or the prefix is too short."""
    if provider.id not in CACHING or provider.local:
        return None
    from retinue.models.tokens import overhead

    if overhead(system, tools) < LEAST_TOKENS:
        return None
    import orjson

    digest = blake2b(digest_size=12)
    for part in (provider.id, model, system):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    for tool in tools:
        digest.update(tool.name.encode() + tool.description.encode("utf-8", "surrogatepass"))
        digest.update(orjson.dumps(tool.parameters, default=dict))
    return digest.hexdigest()
