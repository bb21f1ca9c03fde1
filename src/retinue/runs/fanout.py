"""Consent before one run starts very many agents, and the estimate of their cost.

A run may start a number of agents without consent. Then the cost of the next ones is estimated, and a person is asked
once for all that are requested at the same time. A yes covers these and as many again; a no is valid for the rest of
the run. If nobody can be asked, more agents are refused.

The estimate is the usage of earlier runs of the same agent (of any agent if there are none), at the prices of the model
that the new agents use. It is not a limit; budgets are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.core.format import format_cost, format_count, format_wait
from retinue.errors import RetinueError
from retinue.models.protocol import ModelInfo, priced

if TYPE_CHECKING:
    from retinue.core.run_state import RunState
    from retinue.log.query import LogReader
    from retinue.settings.table import Settings


MAX_SAMPLES = 200
"""The number of earlier runs from which the cost is estimated, newest first."""


class QuotedAgent(NamedTuple):
    """An agent to start."""

    agent: str
    model: ModelInfo


class Estimate(Struct, frozen=True):
    """The expected usage of runs. `usd` is None if a price is unknown, which never means free."""

    tokens: int
    usd: float | None
    seconds: float

    def times(self, count: int, rounds: int) -> Estimate:
        return Estimate(self.tokens * count, None if self.usd is None else self.usd * count, self.seconds * rounds)

    def plus(self, other: Estimate) -> Estimate:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Estimate(self.tokens + other.tokens, usd, self.seconds + other.seconds)


class Quote(Struct, frozen=True):
    """The expected usage of several agents, also in words. `total` is None if no earlier run exists."""

    text: str
    agents: int
    total: Estimate | None = None


def quote(agents: Sequence[QuotedAgent], reader: LogReader, *, at_once: int = 1) -> Quote:
    """Return the quote for all `agents` together, of which `at_once` work at the same time."""
    groups = Counter(agents)
    names = ", ".join(f"{count} × {quoted.agent} on {quoted.model.full_name}" for quoted, count in groups.items())
    heading = f"{len(agents)} agents: {names}." if len(agents) != 1 else f"1 agent: {names[4:]}."
    total = Estimate(0, 0.0, 0.0)
    samples = 0
    for quoted, count in groups.items():
        rows = _sample_runs(reader, quoted.agent)
        if not rows:
            return Quote(f"{heading} Their cost is unknown: no agent has run here yet.", len(agents))
        samples += len(rows)
        rounds = -(-count // max(at_once, 1))
        total = total.plus(_median(rows, quoted.model).times(count, rounds))
    text = f"{heading} {_describe(total)}, estimated from {samples} earlier run{'s' if samples != 1 else ''}."
    return Quote(text, len(agents), total)


def _sample_runs(reader: LogReader, agent: str) -> list[RunState]:
    for name in (agent, None):
        rows = [row for row in reader.list_runs(states={"ended"}, agent=name, limit=MAX_SAMPLES) if row.turns > 0]
        if rows:
            return rows
    return []


def _median(rows: Sequence[RunState], model: ModelInfo) -> Estimate:
    # This module imports much that nothing else of a run needs.
    from statistics import median

    costs = [_cost(row, model) for row in rows]
    known_costs = [cost for cost in costs if cost is not None]
    usd = None
    if known_costs and len(known_costs) == len(costs):
        usd = median(known_costs)
    seconds = [max((row.ended_at or 0.0) - (row.started_at or row.created_at), 0.0) for row in rows]
    return Estimate(round(median(row.usage.total_tokens for row in rows)), usd, median(seconds))


def _cost(row: RunState, model: ModelInfo) -> float | None:
    """Return the cost of the same tokens at the model's prices, without surcharges for long requests."""
    if model.prices is not None:
        return priced(row.usage, replace(model.prices, above=None)).cost_usd
    return row.usage.cost_usd if row.model == model.full_name else None


def _describe(estimate: Estimate) -> str:
    phrases = [f"About {format_count(estimate.tokens)} tokens"]
    if estimate.usd is None:
        phrases.append("at an unknown price")
    elif estimate.usd > 0:
        phrases.append(format_cost(estimate.usd) or "$0")
    else:
        phrases.append("free of charge")
    phrases.append(format_wait(estimate.seconds))
    return ", ".join(phrases)


GATHER_SECONDS = 0.05
ASKED_ABOVE_AGENTS, REFUSED_ABOVE_AGENTS = 32, 1_000

Ask = Callable[[Quote], Awaitable[bool]]
"""Shows a quote to a person, and returns the answer."""


def free_agents(settings: Settings, *, can_ask: bool) -> int | None:
    """Return how many agents a run may start without consent (None: any number). Without a setting, a person is asked
    from a lower number on than a program without a person is refused. A repository can only lower the number."""
    limit, origin = settings.quote_above, settings.origin("quote_above")
    default = ASKED_ABOVE_AGENTS if can_ask else REFUSED_ABOVE_AGENTS
    if origin.layer == "default":
        return default
    return limit if origin.personal else min(limit or default, default)


class FanOut:
    """Counts the agents that one run has started, and asks for consent. Use it from one event loop, and close it with
    the run."""

    def __init__(
        self,
        above: int | None,
        quote: Callable[[Sequence[QuotedAgent]], Quote],
        *,
        ask: Ask | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`above` is the number of agents without consent (None: any number). Without `ask`, more are refused."""
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
        """Count an agent that needs no consent. Return False if `admit` must be called for it."""
        free = self._allowed is None or (self.started < self._allowed and not self._waiting)
        if self._declined is not None or not free:
            return False
        self.started += 1
        return True

    async def admit(self, agent: QuotedAgent) -> str | None:
        """Wait for consent to start the agent. Return None if it may be started, or the reason why not. Cancelling
        withdraws the request."""
        if self._declined is not None or self.take():
            return self._declined
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = agent
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
        """Withdraw the question to the person when no request waits any more."""
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
        has_consent = await self._ask_person(quote)
        self._asking = None
        if has_consent:
            self._allowed = self.started + len(batch) + (self._above or 0)
        else:
            self._declined = self._refusal(quote)
        for answer in [answer for answer in self._waiting if not answer.done()]:
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
            return Quote(f"Their cost could not be estimated: {error}", len(batch))

    async def _ask_person(self, quote: Quote) -> bool:
        if self._ask is None:
            return False
        try:
            return await self._ask(quote)
        except Exception:  # noqa: BLE001 - without an answer there is no consent, and no request may wait for ever
            return False

    def _refusal(self, quote: Quote) -> str:
        reason = f"Not started: this run has already started {self.started} agents"
        if self._ask is not None:
            return f"{reason}, and a person declined more of them. Do not try again: continue with what you have."
        return (
            f"{reason}, and more need the consent of a person, who is not there. {quote.text} "
            "Do not try again: continue with what you have. (To allow it, the user can raise quoteAbove; 0 "
            "sets no limit: retinue settings set quoteAbove 0 --user)"
        )
