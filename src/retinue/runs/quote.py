"""What many agents will probably cost, before they start.

Judged by what earlier runs of the same agent used (any agent's, if it has none), at the prices
of the model they are to use now. An estimate, not a limit: budgets are the limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from retinue.core.format import format_cost, format_count, format_wait
from retinue.models.cost import priced
from retinue.models.protocol import ModelInfo

if TYPE_CHECKING:
    from collections.abc import Collection

    from retinue.core.delegation import State
    from retinue.log.rows import RunRow

SAMPLES = 200
"""How many earlier runs are looked at, newest first."""
LOW, HIGH = 0.1, 0.9


class Wanted(NamedTuple):
    """One agent that is to be started."""

    agent: str
    model: ModelInfo


@dataclass(frozen=True, slots=True)
class Estimate:
    """`usd` is None where a price is not known: unknown is never free."""

    tokens: int
    usd: float | None
    seconds: float

    def times(self, count: int, rounds: int) -> Estimate:
        return Estimate(self.tokens * count, None if self.usd is None else self.usd * count, self.seconds * rounds)

    def plus(self, other: Estimate) -> Estimate:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Estimate(self.tokens + other.tokens, usd, self.seconds + other.seconds)


@dataclass(frozen=True, slots=True)
class Quote:
    """`low` to `high` is where eight of ten earlier runs lie. All three are None while there is
    no earlier run at all to judge by; `samples` says how many there were."""

    text: str
    agents: int
    low: Estimate | None = None
    median: Estimate | None = None
    high: Estimate | None = None
    samples: int = 0


class History(Protocol):
    """The part of `retinue.log.query.Reader` that is needed."""

    def list_runs(
        self, *, states: Collection[State] | None = None, agent: str | None = None, limit: int | None = None
    ) -> list[RunRow]: ...


class _Range(NamedTuple):
    low: Estimate
    median: Estimate
    high: Estimate


def quote(wanted: Sequence[Wanted], history: History, *, at_once: int = 1) -> Quote:
    """For all of `wanted` together, of which `at_once` work at the same time."""
    groups = Counter(wanted)
    names = ", ".join(f"{count} × {each.agent} on {each.model.full_name}" for each, count in groups.items())
    head = f"{len(wanted)} agents: {names}." if len(wanted) != 1 else f"1 agent: {names[4:]}."
    ranges: list[_Range] = []
    samples = 0
    for each, count in groups.items():
        rows = _past(history, each.agent)
        if not rows:
            return Quote(f"{head} What they will cost is not known: no agent has run here yet.", len(wanted))
        samples += len(rows)
        rounds = -(-count // max(at_once, 1))
        ranges.append(_Range(*(part.times(count, rounds) for part in _range(rows, each.model))))
    low, median, high = (_sum(part) for part in zip(*ranges, strict=True))
    text = f"{head} {_words(low, median, high)}, judged by {samples} earlier run{'s' if samples != 1 else ''}."
    return Quote(text, len(wanted), low, median, high, samples)


def _past(history: History, agent: str) -> list[RunRow]:
    for name in (agent, None):
        rows = [row for row in history.list_runs(states={"ended"}, agent=name, limit=SAMPLES) if row.turns > 0]
        if rows:
            return rows
    return []


def _range(rows: Sequence[RunRow], model: ModelInfo) -> _Range:
    tokens = sorted(row.usage.total_tokens for row in rows)
    costs = [_cost(row, model) for row in rows]
    known = sorted(cost for cost in costs if cost is not None)
    seconds = sorted(max((row.ended_at or 0.0) - (row.started_at or row.created_at), 0.0) for row in rows)

    def at(share: float) -> Estimate:
        usd = _at(known, share) if known and len(known) == len(costs) else None
        return Estimate(round(_at(tokens, share)), usd, _at(seconds, share))

    return _Range(at(LOW), at(0.5), at(HIGH))


def _cost(row: RunRow, model: ModelInfo) -> float | None:
    """What the same tokens cost at the model's prices; long requests count at the usual tier."""
    if model.prices is not None:
        return priced(row.usage, replace(model.prices, above=None)).cost_usd
    return row.usage.cost_usd if row.model == model.full_name else None


def _at(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted `values` lie, between two of them if need be."""
    place = share * (len(values) - 1)
    before = int(place)
    after = min(before + 1, len(values) - 1)
    return values[before] + (values[after] - values[before]) * (place - before)


def _sum(parts: Iterable[Estimate]) -> Estimate:
    total = Estimate(0, 0.0, 0.0)
    for part in parts:
        total = total.plus(part)
    return total


def _words(low: Estimate, median: Estimate, high: Estimate) -> str:
    parts = [f"About {format_count(median.tokens)} tokens ({format_count(low.tokens)} to {format_count(high.tokens)})"]
    if median.usd is None or low.usd is None or high.usd is None:
        parts.append("at a price that is not known")
    elif high.usd > 0:
        parts.append(f"{_dollars(median.usd)} ({_dollars(low.usd)} to {_dollars(high.usd)})")
    else:
        parts.append("free of charge")
    parts.append(format_wait(median.seconds))
    return ", ".join(parts)


def _dollars(usd: float) -> str:
    return format_cost(usd) or "$0"
