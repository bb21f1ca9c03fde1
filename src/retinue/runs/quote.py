"""What many agents will probably cost, before they start.

Judged by what earlier runs of the same agent used (any agent's, if it has none), at the prices
of the model they are to use now. An estimate, not a limit: budgets are the limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.format import format_cost, format_count, format_wait
from retinue.models.protocol import ModelInfo, priced

if TYPE_CHECKING:
    from collections.abc import Collection

    from retinue.core.delegation import State
    from retinue.log.rows import RunRow

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
    ) -> list[RunRow]: ...


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


def _past(history: QuoteHistory, agent: str) -> list[RunRow]:
    for name in (agent, None):
        rows = [row for row in history.list_runs(states={"ended"}, agent=name, limit=SAMPLES) if row.turns > 0]
        if rows:
            return rows
    return []


def _median(rows: Sequence[RunRow], model: ModelInfo) -> Estimate:
    from statistics import median  # it imports much that no other part of a run needs

    costs = [_cost(row, model) for row in rows]
    known = [cost for cost in costs if cost is not None]
    usd = None
    if known and len(known) == len(costs):
        usd = median(known)
    seconds = [max((row.ended_at or 0.0) - (row.started_at or row.created_at), 0.0) for row in rows]
    return Estimate(round(median(row.usage.total_tokens for row in rows)), usd, median(seconds))


def _cost(row: RunRow, model: ModelInfo) -> float | None:
    """What the same tokens cost at the model's prices; long requests count at the usual tier."""
    if model.prices is not None:
        return priced(row.usage, replace(model.prices, above=None)).cost_usd
    return row.usage.cost_usd if row.model == model.full_name else None


def _words(median: Estimate) -> str:
    parts = [f"About {format_count(median.tokens)} tokens"]
    if median.usd is None:
        parts.append("at a price that is not known")
    elif median.usd > 0:
        parts.append(_dollars(median.usd))
    else:
        parts.append("free of charge")
    parts.append(format_wait(median.seconds))
    return ", ".join(parts)


def _dollars(usd: float) -> str:
    return format_cost(usd) or "$0"
