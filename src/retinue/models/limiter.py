"""One limiter for each account at a provider, shared by every run of the process.

A run passes its gate before each request. Nothing is limited until a provider refuses. Then every request waits until
the moment it named (or a growing pause, if it named none), the number of requests at once is halved, and one request
goes ahead to see whether the provider accepts again. After its answer the others follow one by one, faster every
second; every few answers one more is allowed at once. After five quiet minutes all of this is forgotten.

    calm ──refused──▶ held ──time──▶ one probe ──answered──▶ paced ──quiet──▶ calm
                       ▲                  │
                       └──────refused─────┘

Requests go in the order they came, and one that is cancelled at any moment returns its place or its slot.

A provider's prompt cache can be read once the first answer to that prompt has begun. So while the first request with a
cold prefix is on its way, others with the same prefix wait for its first part, but not for long.

Processes do not tell one another what they learned: each meets the provider's refusal itself and then keeps
`Retry-After`. Only workers of a cluster share it (`own_holds` and `hold`).
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
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from msgspec import Struct

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.core.format import format_wait
from retinue.core.outcome import Failure, FailureKind
from retinue.core.tool import ToolSpec
from retinue.models.protocol import overhead

if TYPE_CHECKING:
    from retinue.models.providers import Provider


CUT_FACTOR = 0.5
CUT_INTERVAL_SECONDS = 1.0
"""Within this time the number of requests at once is cut only once, however many are refused."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
MAX_RETRY_AFTER_SECONDS = 3_600.0
"""After a longer Retry-After it is tried again all the same."""
MAX_QUEUE_SECONDS = 600.0
"""A provider that closes for longer is not waited for: the request fails, and says until when."""
PROBE_SECONDS = 5.0
SPREAD_SECONDS = 1.0
"""In the first such time after a pause, starts are spread over it; in each further one they may follow each other
twice as fast."""
SPREAD_INTERVALS = 10
FORGET_SECONDS = 300.0
CLOCK_ROUNDING_SECONDS = 1e-6
WARM_SECONDS = 240.0
"""Providers keep a prefix for five minutes after its last use."""
MIN_FOLLOW_SECONDS, MAX_FOLLOW_SECONDS = 2.0, 10.0
MAX_PREFIXES = 256
MIN_CACHED_TOKENS = 1_024
"""No provider caches shorter prompts."""
CACHING = frozenset(
    {"anthropic", "openai", "openai-responses", "azure", "gemini", "deepseek", "xai", "moonshot", "openrouter"}
)
"""Providers that cache prompts."""
BUSY: frozenset[FailureKind] = frozenset({"rate_limit", "overloaded"})
_NO_ANSWER: frozenset[FailureKind] = frozenset({"server", "dropped", "timeout", "internal", "stopped"})

Waiting = Callable[[], AbstractContextManager[None]]


class Prefix:
    """One beginning of prompts. While `leader` asks with it first, `followers` wait; they are woken with True when
    they may ask, and with False when one of them has to lead."""

    __slots__ = ("followers", "leader", "timer", "warm_until")

    def __init__(self) -> None:
        self.warm_until = 0.0
        self.leader: LimiterGate | None = None
        self.followers: list[asyncio.Future[bool]] = []
        self.timer: Timer | None = None

    def release(self, *, ask: bool) -> None:
        """End the lead."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.leader = None
        followers, self.followers = self.followers, []
        for follower in followers:
            if not follower.done():
                follower.set_result(ask)


class LimiterGate:
    """The gate of one run (`retinue.models.retry.RequestSlot`). `waiting` is entered while the run has to wait, so
    that its idle clock can stand still."""

    __slots__ = ("_limiter", "begun", "in_flight", "leads", "prefix", "sent_at", "waiting")

    def __init__(self, limiter: Limiter, prefix: Prefix | None, waiting: Waiting | None) -> None:
        self._limiter = limiter
        self.prefix = prefix
        self.waiting: Waiting = waiting or nullcontext
        self.in_flight = 0
        self.sent_at = 0.0
        self.begun = False
        self.leads = False

    async def before(self) -> Failure | None:
        """Return when the request may be sent. A failure means that it must not be."""
        if self._limiter.enter(self):
            return None
        with self.waiting():
            return await self._limiter.wait(self)

    def began(self) -> None:
        """Note that the first part of the answer is here."""
        if self.in_flight and not self.begun:
            self.begun = True
            self._limiter.answered(self)

    def held(self) -> float:
        """Return for how many seconds no request of this account is admitted."""
        return self._limiter.state().held_seconds

    async def after(self, failure: Failure | None) -> None:
        """The request is over. Called while its task is being cancelled, nothing is learned."""
        task = asyncio.current_task()
        self._limiter.leave(self, failure, cancelled=task is not None and task.cancelling() > 0)


class LimiterState(Struct, frozen=True):
    """`limit` None: any number at once. `held_seconds`: no request is sent for so long."""

    provider: str
    in_flight: int
    waiting: int
    limit: int | None
    held_seconds: float


class Limiter:
    """One account. All times are monotonic seconds; `draw` returns numbers from 0 to 1, for jitter."""

    def __init__(self, provider: str, clock: Clock, draw: Callable[[], float]) -> None:
        self._provider = provider
        self._clock = clock
        self._draw = draw
        self._in_flight = 0
        self._arrivals = 0
        self._queue: list[tuple[int, asyncio.Future[Failure | None], LimiterGate]] = []
        """By order of arrival. A future is done when its request may go, or will not."""
        self._timer: Timer | None = None
        self._prefixes: dict[str, Prefix] = {}
        self._first_part_seconds: deque[float] = deque(maxlen=16)
        self._cut_at = self._busy_at = self._refused_at = -math.inf
        self._own_hold_until = 0.0
        """Until when the provider has told this process to wait."""
        self._forget()

    def _forget(self) -> None:
        self._calm = True
        self._limit = math.inf
        self._held_until = self._next_start = 0.0
        self._opened_at = -math.inf
        self._phase: Literal["open", "probe due", "probing"] = "open"
        self._refusals_in_row = self._answers_at_limit = 0

    def prefix(self, key: str) -> Prefix:
        """Return the prefix of that key. Of too many, the cold ones are forgotten."""
        if key not in self._prefixes and len(self._prefixes) >= MAX_PREFIXES:
            now = self._clock.monotonic()
            for other, prefix in list(self._prefixes.items()):
                if prefix.leader is None and prefix.warm_until <= now:
                    del self._prefixes[other]
        return self._prefixes.setdefault(key, Prefix())

    def state(self) -> LimiterState:
        turns: list[asyncio.Future[Failure | None] | asyncio.Future[bool]] = [turn for _, turn, _ in self._queue]
        for prefix in self._prefixes.values():
            turns += prefix.followers
        return LimiterState(
            provider=self._provider,
            in_flight=self._in_flight,
            waiting=sum(not turn.done() for turn in turns),
            limit=None if self._limit == math.inf else int(self._limit),
            held_seconds=max(self._held_until - self._clock.monotonic(), 0.0),
        )

    # Going in

    def enter(self, gate: LimiterGate) -> bool:
        """Let a request go at once if nothing stands in its way."""
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
            while prefix.leader is not None and not await self._follow(prefix):
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
                # It had been let in before it could know.
                self.leave(gate, None, cancelled=True)
            raise

    async def _follow(self, prefix: Prefix) -> bool:
        follower: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        prefix.followers.append(follower)
        return await follower

    def _delay(self, now: float) -> float | None:
        """Return 0.0 to go now, seconds after which to look again, or None to wait until a request ends."""
        if self._calm:
            return 0.0
        delay = max(self._held_until, self._next_start) - now
        if now - self._refused_at > FORGET_SECONDS and self._held_until <= now:
            self._forget()
        elif self._phase == "probing" and delay <= CLOCK_ROUNDING_SECONDS:
            self._open(now)
        elif delay > CLOCK_ROUNDING_SECONDS:
            return delay
        return None if self._in_flight >= self._limit else 0.0

    def _grant(self, gate: LimiterGate, now: float) -> None:
        self._in_flight += 1
        gate.in_flight += 1
        gate.sent_at = now
        gate.begun = False
        if not self._calm:
            self._pace(now)
        prefix = gate.prefix
        if prefix is not None and now >= prefix.warm_until and prefix.leader in (None, gate):
            prefix.leader, gate.leads = gate, True
            # When the leader takes too long, all followers go, though the cache may be cold.
            prefix.timer = self._clock.call_later(self._follow_seconds(), partial(prefix.release, ask=True))

    def _pace(self, now: float) -> None:
        """Set when the next request may be sent after this one."""
        if self._phase == "probe due":
            self._phase, self._next_start = "probing", now + PROBE_SECONDS
            return
        age = (now - self._opened_at) / SPREAD_SECONDS
        if age < SPREAD_INTERVALS:
            self._next_start = now + 2.0 * self._draw() * SPREAD_SECONDS / self._limit / 2.0**age

    def _admit(self) -> None:
        """Admit every request that may go; arrange to look again when time alone can change that."""
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

    # Coming out

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
        self._in_flight -= 1
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
        """Learn from an accepted request. One that was sent before the last refusal says nothing about now."""
        if self._calm or gate.sent_at <= self._busy_at:
            return
        self._refusals_in_row = 0
        if self._phase == "probing":
            self._open(now)
        if self._in_flight >= self._limit:
            self._answers_at_limit += 1
            if self._answers_at_limit >= max(1, self._limit // 4):
                self._limit, self._answers_at_limit = self._limit + 1, 0

    def _lose(self, gate: LimiterGate) -> None:
        """If a request that ended without an answer was the probe, another is sent."""
        if self._phase == "probing" and gate.sent_at > self._busy_at:
            self._phase, self._next_start = "probe due", 0.0

    def _refuse(self, gate: LimiterGate, now: float, retry_after: float | None, *, busy: bool) -> None:
        """Learn from a refused request. `busy`: because of too many."""
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
        # Without a limit so far, the number in flight is what proved to be too much.
        at_once = self._in_flight if self._limit == math.inf else self._limit
        self._limit = float(max(math.floor(CUT_FACTOR * at_once), 1))

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
        """Return how long others wait for a leader: somewhat longer than first parts usually take."""
        usual = sorted(self._first_part_seconds) or [0.0]
        return min(max(1.5 * usual[len(usual) // 2], MIN_FOLLOW_SECONDS), MAX_FOLLOW_SECONDS)

    # Beside other processes

    def own_hold_seconds(self) -> float:
        """Return for how long the provider has told this process to wait."""
        return self._own_hold_until - self._clock.monotonic()

    def hold(self, seconds: float) -> None:
        """Wait as another process was told to. How many go at once is not learned from others."""
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
        self, provider_id: str, account: str, prefix_key: str | None = None, *, waiting: Waiting | None = None
    ) -> LimiterGate:
        """Return the gate for one run. `prefix_key` (see `shared_prefix`) staggers cold starts at providers that
        cache."""
        # One key, one quota, two wire formats.
        limiter = self._limiter(provider_id.removesuffix("-responses"), account)
        prefix = None
        if prefix_key is not None and provider_id in CACHING:
            prefix = limiter.prefix(prefix_key)
        return LimiterGate(limiter, prefix, waiting)

    def _limiter(self, family: str, account: str) -> Limiter:
        limiter = self._limiters.get((family, account))
        if limiter is None:
            limiter = self._limiters[family, account] = Limiter(family, self._clock, self._draw)
        return limiter

    def own_holds(self) -> dict[str, float]:
        """Return for how many seconds providers have told this process to wait, by a name of the account for other
        processes. A hold that came from another process is not among them."""
        holds = {}
        for (family, account), limiter in self._limiters.items():
            seconds = limiter.own_hold_seconds()
            if seconds > 0.0:
                holds[f"{family} {account}"] = seconds
        return holds

    def hold(self, name: str, seconds: float) -> None:
        """Let an account wait as another process was told to."""
        family, _, account = name.partition(" ")
        self._limiter(family, account).hold(seconds)

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
    if overhead(system, tools) < MIN_CACHED_TOKENS:
        return None
    import orjson

    parameters = [(tool.name, tool.description, dict(tool.parameters)) for tool in tools]
    prefix = orjson.dumps((provider.id, model, parameters), default=dict) + system.encode("utf-8", "surrogatepass")
    return blake2b(prefix, digest_size=12).hexdigest()
