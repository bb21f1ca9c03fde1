"""What a request cost."""

from __future__ import annotations

import pytest

from retinue.domain.usage import Usage
from retinue.models.cost import priced
from retinue.models.known import FREE
from retinue.models.protocol import Prices

TIERED = Prices(2, 10, 0.2, 2.5, above=(200_000, Prices(4, 15, 0.4, 5)))


def test_an_unknown_price_is_not_zero() -> None:
    assert priced(Usage(input=5), None).cost_usd is None
    assert priced(Usage(input=5, output=5, cache_read=5, cache_write=5), FREE).cost_usd == 0


def test_a_long_request_is_priced_by_its_tier_as_a_whole() -> None:
    short = Usage(input=100_000, cache_read=100_000)
    assert priced(short, TIERED).cost_usd == pytest.approx(0.2 + 0.02)
    long = Usage(input=100_000, cache_read=100_001, output=1_000)
    assert priced(long, TIERED).cost_usd == pytest.approx(0.4 + 0.0400004 + 0.015)
