"""One limiter for each account at a provider, shared by every run of the process.

A run passes its gate before each request. Nothing is limited until the provider refuses a request. Then all requests
wait for the time that the provider named, or for a pause that doubles with each refusal, and the number of concurrent
requests is halved. One request probes whether the provider accepts again. After its answer the others are sent one by
one, at shrinking intervals, and every few answers raise the number of concurrent requests by one. Five minutes without
a refusal reset the limiter.

    calm ──refused──▶ held ──time──▶ one probe ──answered──▶ paced ──quiet──▶ calm
                       ▲                  │
                       └──────refused─────┘

Requests are sent in the order of their arrival. A request that is cancelled gives back its place in the queue or its
slot.

A provider's prompt cache can be read once the first answer to that prompt has begun. Therefore requests with the same
cold prefix wait until the first of them receives the beginning of its answer, for ten seconds at most.

Each process learns from the refusals of its own requests. Only the workers of a cluster share how long a provider told
them to wait (`own_holds` and `hold`).
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.core.format import format_wait
from retinue.core.outcome import Failure, FailureKind
from retinue.core.tool import ToolSpec
from retinue.models.protocol import overhead
from retinue.models.retry import RequestGate

if TYPE_CHECKING:
    from retinue.models.providers import Provider


CUT_FACTOR = 0.5
CUT_INTERVAL_SECONDS = 1.0
"""All refusals within this time halve the number of concurrent requests once."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
MAX_RETRY_AFTER_SECONDS = 3_600.0
"""A longer Retry-After is shortened to this."""
MAX_QUEUE_SECONDS = 600.0
"""A request fails at once when the provider accepts none for longer than this; the failure states for how long."""
PROBE_SECONDS = 5.0
SPREAD_SECONDS = 1.0
"""The waiting requests are spread over this time after a pause; in each further such time the interval halves."""
SPREAD_INTERVALS = 10
FORGET_SECONDS = 300.0
CLOCK_ROUNDING_SECONDS = 1e-6
WARM_SECONDS = 240.0
"""Providers keep a prefix for five minutes after its last use."""
MIN_FOLLOW_SECONDS, MAX_FOLLOW_SECONDS = 2.0, 10.0
MAX_PREFIXES = 256
MIN_CACHED_TOKENS = 1_024
"""No provider caches shorter prompts."""
CACHING_PROVIDERS = frozenset(
    {"anthropic", "openai", "openai-responses", "azure", "gemini", "deepseek", "xai", "moonshot", "openrouter"}
)
BUSY: frozenset[FailureKind] = frozenset({"rate_limit", "overloaded"})
_NO_ANSWER: frozenset[FailureKind] = frozenset({"server", "dropped", "timeout", "internal", "stopped"})

WaitContext = Callable[[], AbstractContextManager[None]]


class Prefix:
    """A beginning that several prompts share. While the request of `leader` is the first with it, `followers` wait."""

    __slots__ = ("followers", "leader", "timer", "warm_until")

    def __init__(self) -> None:
        self.warm_until = 0.0
        self.leader: LimiterGate | None = None
        self.followers: list[asyncio.Future[bool]] = []
        self.timer: Timer | None = None

    def follow(self) -> asyncio.Future[bool]:
        """Return what a follower waits for: True when it may ask, False when one of the followers has to lead."""
        follower: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.followers.append(follower)
        return follower

    def release(self, *, ask: bool) -> None:
        """End the lead and wake the followers."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.leader = None
        followers, self.followers = self.followers, []
        for follower in followers:
            if not follower.done():
                follower.set_result(ask)


class LimiterGate(RequestGate):
    """The gate of one run (`retinue.models.retry.RequestGate`). `waiting` is entered while the run waits, so that its
    idle clock stops."""

    __slots__ = ("_limiter", "begun", "in_flight", "leads", "prefix", "sent_at", "waiting")

    def __init__(self, limiter: Limiter, prefix: Prefix | None, waiting: WaitContext | None) -> None:
        self._limiter = limiter
        self.prefix = prefix
        self.waiting: WaitContext = waiting or nullcontext
        self.in_flight = 0
        self.sent_at = 0.0
        self.begun = False
        self.leads = False

    async def before(self) -> Failure | None:
        """Wait until the request may be sent. Return a failure if it must not be sent."""
        if self._limiter.enter(self):
            return None
        with self.waiting():
            return await self._limiter.wait(self)

    def began(self) -> None:
        """Note that the first part of the answer has arrived."""
        if self.in_flight and not self.begun:
            self.begun = True
            self._limiter.answered(self)

    def held(self) -> float:
        """Return for how many seconds no request of this account is sent."""
        return self._limiter.held_seconds

    async def after(self, failure: Failure | None) -> None:
        """Note the end of the request. The limiter learns nothing from a request whose task is being cancelled."""
        task = asyncio.current_task()
        self._limiter.leave(self, failure, cancelled=task is not None and task.cancelling() > 0)


class Limiter:
    """The limiter of one account. All times are monotonic seconds; `draw` returns numbers from 0 to 1, for jitter."""

    def __init__(self, provider: str, clock: Clock, draw: Callable[[], float]) -> None:
        self._provider = provider
        self._clock = clock
        self._draw = draw
        self.in_flight = 0
        self._arrivals = 0
        self._queue: list[tuple[int, asyncio.Future[Failure | None], LimiterGate]] = []
        """By order of arrival. A future is done when its request may be sent, or has failed."""
        self._timer: Timer | None = None
        self._prefixes: dict[str, Prefix] = {}
        self._first_part_seconds: deque[float] = deque(maxlen=16)
        self._cut_at = self._busy_at = self._refused_at = -math.inf
        self._own_hold_until = 0.0
        """Until when the provider has told this process to wait."""
        self._forget()

    def _forget(self) -> None:
        self._calm = True
        self.limit = math.inf
        """The number of concurrent requests."""
        self._held_until = self._next_start = 0.0
        self._opened_at = -math.inf
        self._phase: Literal["open", "probe due", "probing"] = "open"
        self._refusals_in_row = self._answers_at_limit = 0

    def prefix(self, key: str) -> Prefix:
        """Return the prefix of that key. Cold prefixes are dropped when there are too many."""
        if key not in self._prefixes and len(self._prefixes) >= MAX_PREFIXES:
            now = self._clock.monotonic()
            for other, prefix in list(self._prefixes.items()):
                if prefix.leader is None and prefix.warm_until <= now:
                    del self._prefixes[other]
        return self._prefixes.setdefault(key, Prefix())

    @property
    def waiting(self) -> int:
        """The number of requests that wait, for their turn or for a warm cache."""
        futures: list[asyncio.Future[Any]] = [turn for _, turn, _ in self._queue]
        for prefix in self._prefixes.values():
            futures += prefix.followers
        return sum(not future.done() for future in futures)

    @property
    def held_seconds(self) -> float:
        """The seconds for which no request is sent."""
        return max(self._held_until - self._clock.monotonic(), 0.0)

    # Admission

    def enter(self, gate: LimiterGate) -> bool:
        """Return whether the request may be sent at once."""
        now = self._clock.monotonic()
        prefix = gate.prefix
        if prefix is not None and prefix.leader is not None and now >= prefix.warm_until:
            return False
        if self._queue or (not self._calm and self._delay(now) != 0.0):
            return False
        self._grant(gate, now)
        return True

    async def wait(self, gate: LimiterGate) -> Failure | None:
        self._arrivals += 1
        number, prefix = self._arrivals, gate.prefix
        if prefix is not None:
            while prefix.leader is not None and not await prefix.follow():
                pass
            if self.enter(gate):
                return None
            if prefix.leader is None and self._clock.monotonic() >= prefix.warm_until:
                prefix.leader = gate
        turn: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (number, turn, gate))
        self._admit()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled() or turn.result() is not None:
                self._end_lead(gate)
                self._admit()
            else:
                # It was admitted, and cancelled before it was woken.
                self.leave(gate, None, cancelled=True)
            raise

    def _delay(self, now: float) -> float | None:
        """Return 0.0 if the next request may be sent now, the seconds after which to check again, or None if a request
        has to end first."""
        if self._calm:
            return 0.0
        delay = max(self._held_until, self._next_start) - now
        if now - self._refused_at > FORGET_SECONDS and self._held_until <= now:
            self._forget()
        elif self._phase == "probing" and delay <= CLOCK_ROUNDING_SECONDS:
            self._open(now)
        elif delay > CLOCK_ROUNDING_SECONDS:
            return delay
        return None if self.in_flight >= self.limit else 0.0

    def _grant(self, gate: LimiterGate, now: float) -> None:
        self.in_flight += 1
        gate.in_flight += 1
        gate.sent_at = now
        gate.begun = False
        if not self._calm:
            self._pace(now)
        prefix = gate.prefix
        if prefix is not None and now >= prefix.warm_until and prefix.leader in (None, gate):
            prefix.leader, gate.leads = gate, True
            # All followers are sent when the leader takes too long, though the cache may be cold.
            prefix.timer = self._clock.call_later(self._follow_seconds(), partial(prefix.release, ask=True))

    def _pace(self, now: float) -> None:
        """Set when the next request may be sent after this one."""
        if self._phase == "probe due":
            self._phase, self._next_start = "probing", now + PROBE_SECONDS
            return
        age = (now - self._opened_at) / SPREAD_SECONDS
        if age < SPREAD_INTERVALS:
            self._next_start = now + 2.0 * self._draw() * SPREAD_SECONDS / self.limit / 2.0**age

    def _admit(self) -> None:
        """Admit every request that may be sent, and set a timer if the next one only has to wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        while self._queue:
            _, turn, gate = self._queue[0]
            if not turn.done():
                delay = self._delay(now)
                if delay is None:
                    return
                if delay > MAX_QUEUE_SECONDS:
                    self._refuse_queue(delay)
                    return
                if delay:
                    self._timer = self._clock.call_later(delay, self._admit)
                    return
                self._grant(gate, now)
                turn.set_result(None)
            heapq.heappop(self._queue)

    def _refuse_queue(self, seconds: float) -> None:
        queue, self._queue = self._queue, []
        failure = Failure(
            "rate_limit",
            f"{self._provider} takes no requests of this account for another {format_wait(seconds)}.",
            "Resume the run then, or use another key or model.",
            retry_after=seconds,
        )
        for _, turn, gate in queue:
            if not turn.done():
                turn.set_result(failure)
            self._end_lead(gate, ask=True)

    # Answers and refusals

    def answered(self, gate: LimiterGate) -> None:
        now = self._clock.monotonic()
        self._accept(gate, now)
        prefix = gate.prefix
        if prefix is not None:
            prefix.warm_until = now + WARM_SECONDS
            if gate.leads:
                gate.leads = False
                self._first_part_seconds.append(now - gate.sent_at)
            if prefix.leader is not None:
                prefix.release(ask=True)
        if self._queue:
            self._admit()

    def leave(self, gate: LimiterGate, failure: Failure | None, *, cancelled: bool) -> None:
        if not gate.in_flight:
            return
        gate.in_flight -= 1
        if failure is None and not cancelled and not gate.begun:
            gate.begun = True
            self.answered(gate)
        elif failure is not None or not gate.begun:
            self._learn(gate, failure)
        self.in_flight -= 1
        self._end_lead(gate)
        if self._queue:
            self._admit()

    def _learn(self, gate: LimiterGate, failure: Failure | None) -> None:
        now = self._clock.monotonic()
        if failure is not None and (failure.kind in BUSY or failure.retry_after is not None):
            self._refuse(gate, now, failure.retry_after, busy=failure.kind in BUSY)
        elif failure is None or failure.kind in _NO_ANSWER:
            self._lose(gate)
        else:
            self._accept(gate, now)

    def _accept(self, gate: LimiterGate, now: float) -> None:
        """Learn from an accepted request, unless it was sent before the last refusal."""
        if self._calm or gate.sent_at <= self._busy_at:
            return
        self._refusals_in_row = 0
        if self._phase == "probing":
            self._open(now)
        if self.in_flight >= self.limit:
            self._answers_at_limit += 1
            if self._answers_at_limit >= max(1, self.limit // 4):
                self.limit, self._answers_at_limit = self.limit + 1, 0

    def _lose(self, gate: LimiterGate) -> None:
        """Send another probe if the probe ended without an answer."""
        if self._phase == "probing" and gate.sent_at > self._busy_at:
            self._phase, self._next_start = "probe due", 0.0

    def _refuse(self, gate: LimiterGate, now: float, retry_after: float | None, *, busy: bool) -> None:
        """Learn from a refused request. `busy`: the provider refused it because of too many requests."""
        if retry_after is not None and math.isnan(retry_after):
            retry_after = None
        busy = busy and gate.sent_at > self._busy_at
        if not busy and retry_after is None:
            self._lose(gate)
            return
        if busy:
            self._cut(now)
            self._refusals_in_row += 1
            self._busy_at = now
        if retry_after is not None:
            seconds = min(max(retry_after, 0.0), MAX_RETRY_AFTER_SECONDS)
            seconds += self._draw() * min(0.05 + 0.1 * seconds, 1.0)
        else:
            pause = FIRST_PAUSE_SECONDS * 2.0 ** min(self._refusals_in_row - 1, 16)
            seconds = min(pause, MAX_PAUSE_SECONDS) * (0.5 + self._draw())
        self._hold(now, now + seconds)
        self._own_hold_until = self._held_until

    def _cut(self, now: float) -> None:
        if now - self._cut_at < CUT_INTERVAL_SECONDS:
            return
        self._cut_at = now
        self._answers_at_limit = 0
        # Without a limit so far, the requests in flight were too many.
        concurrent = self.in_flight if self.limit == math.inf else self.limit
        self.limit = float(max(math.floor(CUT_FACTOR * concurrent), 1))

    def _hold(self, now: float, until: float) -> None:
        self._calm = False
        self._refused_at = now
        self._phase, self._next_start = "probe due", 0.0
        self._held_until = max(self._held_until, until)

    def _open(self, now: float) -> None:
        self._phase = "open"
        self._next_start = self._opened_at = now

    def _end_lead(self, gate: LimiterGate, *, ask: bool = False) -> None:
        if gate.prefix is not None and gate.prefix.leader is gate:
            gate.prefix.release(ask=ask)

    def _follow_seconds(self) -> float:
        """Return how long followers wait for a leader: one and a half times the median time to a first part."""
        usual = sorted(self._first_part_seconds) or [0.0]
        return min(max(1.5 * usual[len(usual) // 2], MIN_FOLLOW_SECONDS), MAX_FOLLOW_SECONDS)

    # Holds that processes share

    def own_hold_seconds(self) -> float:
        """Return for how long the provider told this process to wait."""
        return self._own_hold_until - self._clock.monotonic()

    def hold(self, seconds: float) -> None:
        """Wait as the provider told another process to. The number of concurrent requests stays as it is."""
        now = self._clock.monotonic()
        if seconds > 0.0 and now + seconds > self._held_until:
            self._hold(now, now + seconds)


class Limiters:
    """Every account of this process. Use from one event loop."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, draw: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._draw = draw
        self._limiters: dict[tuple[str, str], Limiter] = {}

    def gate_for(
        self, provider_id: str, account: str, prefix_key: str | None = None, *, waiting: WaitContext | None = None
    ) -> LimiterGate:
        """Return the gate of one run. `prefix_key` (see `shared_prefix`) lets requests with a cold prefix wait for the
        first of them."""
        # One key has one quota for both wire formats of OpenAI.
        limiter = self.limiter(provider_id.removesuffix("-responses"), account)
        prefix = limiter.prefix(prefix_key) if prefix_key is not None and provider_id in CACHING_PROVIDERS else None
        return LimiterGate(limiter, prefix, waiting)

    def limiter(self, family: str, account: str) -> Limiter:
        """Return the limiter of one account, which is made at its first request."""
        key = (family, account)
        if key not in self._limiters:
            self._limiters[key] = Limiter(family, self._clock, self._draw)
        return self._limiters[key]

    def own_holds(self) -> dict[str, float]:
        """Return for how many seconds providers told this process to wait, by a name of the account that other
        processes understand. Holds that came from another process are left out."""
        holds = {" ".join(account): limiter.own_hold_seconds() for account, limiter in self._limiters.items()}
        return {name: seconds for name, seconds in holds.items() if seconds > 0.0}

    def hold(self, name: str, seconds: float) -> None:
        """Let an account wait as the provider told another process to."""
        family, _, account = name.partition(" ")
        self.limiter(family, account).hold(seconds)


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, Limiters] = WeakKeyDictionary()


def process_limiters() -> Limiters:
    """Return the limiters that all projects on the running event loop share."""
    return _OF_LOOP.setdefault(asyncio.get_running_loop(), Limiters())


def account_of(provider: Provider) -> str:
    """Return the account at a provider: a digest of key and address, which reveals neither."""
    text = f"{provider.api_key}{provider.helper or ''}\0{provider.base_url}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=12).hexdigest()


def shared_prefix(provider: Provider, model: str, system: str, tools: Sequence[ToolSpec]) -> str | None:
    """Return the key of the beginning that all requests of a run share. Return None if waiting for a warm cache cannot
    pay: the provider has no cache, the server is on this machine, or the prefix is too short."""
    if provider.id not in CACHING_PROVIDERS or provider.local or overhead(system, tools) < MIN_CACHED_TOKENS:
        return None
    import orjson

    parameters = [(tool.name, tool.description, dict(tool.parameters)) for tool in tools]
    prefix = orjson.dumps((provider.id, model, parameters), default=dict) + system.encode("utf-8", "surrogatepass")
    return blake2b(prefix, digest_size=12).hexdigest()
