"""What a request cost, from its tokens and the model's prices."""

from __future__ import annotations

from retinue.core.lean import replace
from retinue.core.usage import Usage
from retinue.models.protocol import Prices

CACHE_WRITE_FACTOR = 1.25
"""What writing to a cache costs, relative to plain input, where the price list does not say."""


LONG_WRITE_FACTOR = 2.0
"""What writing for an hour costs, relative to plain input (platform.claude.com prompt-caching)."""


def priced(usage: Usage, prices: Prices | None, long_writes: int = 0) -> Usage:
    """The usage of one request with its cost; None for a model without prices, so that unknown
    is not free. A long request is priced by its tier (`Prices.above`), as a whole. Cached
    input without a price of its own counts as plain input: never an underestimate. `long_writes`
    of the tokens written are kept for an hour and cost more."""
    if prices is None:
        return replace(usage, cost_usd=None)
    if prices.above is not None and usage.input + usage.cache_read + usage.cache_write > prices.above[0]:
        prices = prices.above[1]
    read = prices.input if prices.cache_read is None else prices.cache_read
    write = prices.input * CACHE_WRITE_FACTOR if prices.cache_write is None else prices.cache_write
    dollars = (
        usage.input * prices.input + usage.output * prices.output + usage.cache_read * read + usage.cache_write * write
    )
    if long_writes:
        dollars += min(long_writes, usage.cache_write) * max(prices.input * LONG_WRITE_FACTOR - write, 0.0)
    return replace(usage, cost_usd=dollars / 1_000_000)
