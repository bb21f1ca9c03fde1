from __future__ import annotations

import pytest

from retinue.domain.usage import Usage
from retinue.models.prices import cost
from retinue.models.protocol import Prices


def test_each_kind_of_token_has_its_price() -> None:
    usage = Usage(input=1_000_000, output=100_000, cache_read=2_000_000, cache_write=400_000)
    assert cost(usage, Prices(3, 15, 0.3, 3.75)) == pytest.approx(3 + 1.5 + 0.6 + 1.5)


def test_cached_tokens_without_a_price_cost_what_input_costs() -> None:
    assert cost(Usage(cache_read=1_000_000, cache_write=1_000_000), Prices(2, 8)) == pytest.approx(4)


def test_an_unknown_price_is_not_zero() -> None:
    assert cost(Usage(input=5), None) is None
    assert cost(Usage(input=5), Prices(0, 0)) == 0


def test_a_long_request_is_priced_as_a_whole_by_its_tier() -> None:
    prices = Prices(2, 10, 0.2, 2.5, above=(200_000, Prices(4, 15, 0.4, 5)))
    assert cost(Usage(input=100_000, cache_read=100_000), prices) == pytest.approx(0.2 + 0.02)
    assert cost(Usage(input=100_000, cache_read=100_001, output=1_000), prices) == pytest.approx(
        0.4 + 0.0400004 + 0.015
    )
