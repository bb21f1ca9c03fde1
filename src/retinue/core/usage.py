"""Tokens and money of one request, one run or one tree."""

from __future__ import annotations

from retinue.core.lean import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Lifetime counters: they only grow, and compaction never resets them.

    `input` excludes what the provider read from its cache; `cost_usd` is None while any
    part of the sum is unpriced, so that "unknown" never reads as "free".
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        cost = None
        if self.cost_usd is not None and other.cost_usd is not None:
            cost = self.cost_usd + other.cost_usd
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            cost,
        )

    @property
    def total_tokens(self) -> int:
        """Tokens that were new work. Cache reads are left out: they repeat every turn."""
        return self.input + self.output + self.cache_write

    @property
    def context_tokens(self) -> int:
        """What this one request occupied in the model's window."""
        return self.input + self.cache_read + self.cache_write + self.output


NOTHING = Usage()
