"""Money: unknown is never free, and never an underestimate."""

from __future__ import annotations

import pytest

from retinue.core.usage import Usage
from retinue.models.protocol import Prices, priced

USAGE = Usage(input=1000, output=100, cache_read=10_000, cache_write=500)


def test_every_kind_of_token_has_its_price() -> None:
    cost = priced(USAGE, Prices(3.0, 15.0, 0.3, 3.75)).cost_usd
    assert cost == pytest.approx((1000 * 3 + 100 * 15 + 10_000 * 0.3 + 500 * 3.75) / 1e6)


def test_a_cache_without_a_price_costs_what_input_costs_and_writing_a_quarter_more() -> None:
    cost = priced(USAGE, Prices(2.0, 8.0)).cost_usd
    assert cost == pytest.approx((1000 * 2 + 100 * 8 + 10_000 * 2 + 500 * 2.5) / 1e6)


def test_free_is_zero_and_unknown_is_none() -> None:
    assert priced(USAGE, Prices(0.0, 0.0)).cost_usd == 0.0
    assert priced(USAGE, None).cost_usd is None


def test_what_is_kept_for_an_hour_costs_twice_the_input() -> None:
    """platform.claude.com prompt-caching: 5-minute writes 1.25 times the input, 1-hour writes twice."""
    prices = Prices(4.0, 20.0, 0.2, 5.0)
    plain = priced(USAGE, prices).cost_usd
    both = priced(USAGE, prices, long_writes=200).cost_usd
    assert plain is not None and both == pytest.approx(plain + 200 * (8.0 - 5.0) / 1e6)
