"""What one request cost. Unknown is None and never 0: a budget must not take it for free."""

from __future__ import annotations

from retinue.domain.usage import Usage
from retinue.models.protocol import Prices

MILLION = 1_000_000


def cost(usage: Usage, prices: Prices | None) -> float | None:
    """US dollars for one request (tiers count per request, so never call it on a sum).
    Cached tokens without a price of their own cost what input costs."""
    if prices is None:
        return None
    if prices.above is not None and usage.input + usage.cache_read + usage.cache_write > prices.above[0]:
        return cost(usage, prices.above[1])
    read = prices.input if prices.cache_read is None else prices.cache_read
    write = prices.input if prices.cache_write is None else prices.cache_write
    dollars = usage.input * prices.input + usage.output * prices.output
    return (dollars + usage.cache_read * read + usage.cache_write * write) / MILLION
