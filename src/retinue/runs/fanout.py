"""Consent before one run starts very many agents, and the estimate of their cost that a person is shown.

Up to `above` agents a run starts as it likes. Then the cost of the next ones is estimated and a person is asked once
for all that are wanted in the same moment; yes covers those and as many again, no stands for the rest of the run. Where
nobody can be asked, more are refused.

The estimate comes from what earlier runs of the same agent used (any agent's, if it has none), at the prices of the
model they are to use now. It is no limit: budgets are the limits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.core.format import format_cost, format_count, format_wait
from retinue.errors import RetinueError
from retinue.models.protocol import ModelInfo, priced

if TYPE_CHECKING:
    from collections.abc import Collection

    from retinue.core.delegation import State
    from retinue.core.run_state import RunState
    from retinue.settings.table import Settings


SAMPLES = 200
"""How many earlier runs are looked at, newest first."""


class QuotedAgent(NamedTuple):
    """One agent that is to be started."""

    agent: str
    model: ModelInfo


class Estimate(Struct, frozen=True):
    """`usd` is None where a price is not known: unknown is never free."""

    tokens: int
    usd: float | None
    seconds: float

    def times(self, count: int, rounds: int) -> Estimate:
        return Estimate(self.tokens * count, None if self.usd is None else self.usd * count, self.seconds * rounds)

    def plus(self, other: Estimate) -> Estimate:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Estimate(self.tokens + other.tokens, usd, self.seconds + other.seconds)


class Quote(Struct, frozen=True):
    """`median` is None while there is no earlier run to judge by; `samples` says how many there were."""

    text: str
    agents: int
    median: Estimate | None = None
    samples: int = 0


class QuoteHistory(Protocol):
    """The part of `retinue.log.query.Reader` that is needed."""

    def list_runs(
        self, *, states: Collection[State] | None = None, agent: str | None = None, limit: int | None = None
    ) -> list[RunState]: ...


def quote(wanted: Sequence[QuotedAgent], history: QuoteHistory, *, at_once: int = 1) -> Quote:
    """For all of `wanted` together, of which `at_once` work at the same time."""
    groups = Counter(wanted)
    names = ", ".join(f"{count} × {each.agent} on {each.model.full_name}" for each, count in groups.items())
    head = f"{len(wanted)} agents: {names}." if len(wanted) != 1 else f"1 agent: {names[4:]}."
    median = Estimate(0, 0.0, 0.0)
    samples = 0
    for each, count in groups.items():
        rows = _past(history, each.agent)
        if not rows:
            return Quote(f"{head} What they will cost is not known: no agent has run here yet.", len(wanted))
        samples += len(rows)
        rounds = -(-count // max(at_once, 1))
        median = median.plus(_median(rows, each.model).times(count, rounds))
    text = f"{head} {_words(median)}, judged by {samples} earlier run{'s' if samples != 1 else ''}."
    return Quote(text, len(wanted), median, samples)


def _past(history: QuoteHistory, agent: str) -> list[RunState]:
    for name in (agent, None):
        rows = [row for row in history.list_runs(states={"ended"}, agent=name, limit=SAMPLES) if row.turns > 0]
        if rows:
            return rows
    return []


def _median(rows: Sequence[RunState], model: ModelInfo) -> Estimate:
    # It imports much that no other part of a run needs.
    from statistics import median

    costs = [_cost(row, model) for row in rows]
    known = [cost for cost in costs if cost is not None]
    usd = None
    if known and len(known) == len(costs):
        usd = median(known)
    seconds = [max((row.ended_at or 0.0) - (row.started_at or row.created_at), 0.0) for row in rows]
    return Estimate(round(median(row.usage.total_tokens for row in rows)), usd, median(seconds))


def _cost(row: RunState, model: ModelInfo) -> float | None:
    """What the same tokens cost at the model's prices; long requests count at the usual tier."""
    if model.prices is not None:
        return priced(row.usage, replace(model.prices, above=None)).cost_usd
    return row.usage.cost_usd if row.model == model.full_name else None


def _words(median: Estimate) -> str:
    parts = [f"About {format_count(median.tokens)} tokens"]
    if median.usd is None:
        parts.append("at a price that is not known")
    elif median.usd > 0:
        parts.append(format_cost(median.usd) or "$0")
    else:
        parts.append("free of charge")
    parts.append(format_wait(median.seconds))
    return ", ".join(parts)


GATHER_SECONDS = 0.05
ASKED_ABOVE, REFUSED_ABOVE = 32, 1_000

Ask = Callable[[Quote], Awaitable[bool]]
"""Puts a quote before a person, and gives the answer."""


def free_agents(settings: Settings, *, can_ask: bool) -> int | None:
    """How many agents a run starts as it likes; None: any number. A person who is there is asked
    earlier than a program without one is refused, unless the user set a number; a repository can
    only lower it."""
    said, origin = settings.quote_above, settings.origin("quote_above")
    usual = ASKED_ABOVE if can_ask else REFUSED_ABOVE
    if origin.layer == "default":
        return usual
    return said if origin.personal else min(said or usual, usual)


class FanOut:
    """The agents that one run has started. Use from one event loop; close it with the run."""

    def __init__(
        self,
        above: int | None,
        quote: Callable[[Sequence[QuotedAgent]], Quote],
        *,
        ask: Ask | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`above` None: any number. `ask` None: nobody is there, and more are refused."""
        self._above = above
        self._allowed = above
        self._quote = quote
        self._ask = ask
        self._clock = clock
        self._declined: str | None = None
        self._waiting: dict[asyncio.Future[str | None], QuotedAgent] = {}
        self._timer: Timer | None = None
        self._asking: asyncio.Task[None] | None = None
        self.started = 0

    def take(self) -> bool:
        """Count one agent that may be started as one likes. False: ask `admit` for it."""
        free = self._allowed is None or (self.started < self._allowed and not self._waiting)
        if self._declined is not None or not free:
            return False
        self.started += 1
        return True

    async def admit(self, wanted: QuotedAgent) -> str | None:
        """Return when the agent may be started; a text means that it must not be, and why.
        Cancelling takes the wish back."""
        if self._declined is not None or self.take():
            return self._declined
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = wanted
        self._gather()
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.cancelled() and answer.result() is None:
                self.started -= 1
            raise
        finally:
            self._waiting.pop(answer, None)
            if not self._waiting:
                self.close()

    def close(self) -> None:
        """Nobody waits any more: takes back what was put before a person."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _gather(self) -> None:
        if self._timer is None and self._asking is None:
            self._timer = self._clock.call_later(GATHER_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._asking = asyncio.get_running_loop().create_task(self._settle(list(self._waiting.values())), name="quote")

    async def _settle(self, batch: Sequence[QuotedAgent]) -> None:
        quote = self._estimate(batch)
        agreed = await self._agreed(quote)
        self._asking = None
        if agreed:
            self._allowed = self.started + len(batch) + (self._above or 0)
        else:
            self._declined = self._refusal(quote)
        for answer in [each for each in self._waiting if not each.done()]:
            if self._declined is None:
                if self._allowed is not None and self.started >= self._allowed:
                    self._gather()
                    break
                self.started += 1
            answer.set_result(self._declined)

    def _estimate(self, batch: Sequence[QuotedAgent]) -> Quote:
        try:
            return self._quote(batch)
        except RetinueError as error:
            return Quote(f"What they will cost could not be estimated: {error}", len(batch))

    async def _agreed(self, quote: Quote) -> bool:
        if self._ask is None:
            return False
        try:
            return await self._ask(quote)
        except Exception:  # noqa: BLE001 - who cannot be asked has not agreed, and nobody may wait for ever
            return False

    def _refusal(self, quote: Quote) -> str:
        begun = f"Not started: this run has already started {self.started} agents"
        if self._ask is not None:
            return f"{begun}, and a person declined more of them. Do not try again: go on with what you have."
        return (
            f"{begun}, and more need the consent of a person, who is not there. {quote.text} "
            "Do not try again: go on with what you have. (To allow it, the user can raise quoteAbove; 0 "
            "sets no limit: retinue settings set quoteAbove 0 --user)"
        )
