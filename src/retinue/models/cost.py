"""What a request cost, from its tokens and the model's prices."""

from __future__ import annotations

from retinue.domain.lean import replace
from retinue.domain.usage import Usage
from retinue.models.protocol import Prices

CACHE_WRITE_FACTOR = 1.25
"""What writing to a cache costs, relative to plain input, where the price list does not say."""


def priced(usage: Usage, prices: Prices | None) -> Usage:
    """The usage of one request with its cost; None for a model without prices, so that unknown
    is not free. A long request is priced by its tier (`Prices.above`), as a whole. Cached
    input without a price of its own counts as plain input: never an underestimate."""
    if prices is None:
        return replace(usage, cost_usd=None)
    if prices.above is not None and usage.input + usage.cache_read + usage.cache_write > prices.above[0]:
        prices = prices.above[1]
    read = prices.input if prices.cache_read is None else prices.cache_read
    write = prices.input * CACHE_WRITE_FACTOR if prices.cache_write is None else prices.cache_write
    dollars = (
        usage.input * prices.input + usage.output * prices.output + usage.cache_read * read + usage.cache_write * write
    )
    return replace(usage, cost_usd=dollars / 1_000_000)
