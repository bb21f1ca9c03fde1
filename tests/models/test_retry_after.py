"""Waiting times in every form in which servers write them."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.models.retry import duration, retry_after
from tests.models.scripts import RELAXED

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:30Z",
                "anthropic-ratelimit-tokens-remaining": "1000",
                "anthropic-ratelimit-tokens-reset": "2027-01-15T09:00:00Z",
            },
            30.0,
        ),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"}, 62.5),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "1m"}, None),
        ({"x-ratelimit-reset": str(int((NOW + 12) * 1000)), "x-ratelimit-remaining": "0"}, 12.0),
        ({"x-ratelimit-reset": "8"}, 8.0),
    ],
)
def test_headers(headers: dict[str, str], seconds: float | None) -> None:
    found = retry_after(headers, None, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Please try again in 11.054s. Visit https://x", 11.054),
        ("Please try again in 6m0.5s.", 360.5),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("Retry after 20 seconds", 20.0),
        ("Please wait 2 minutes before you try again", 120.0),
        ("try again in 250ms", 0.25),
        ("Please try again later. Limit 30000, used 3 models", None),
        ("", None),
    ],
)
def test_a_wait_in_prose(said: str, seconds: float | None) -> None:
    found = retry_after({}, None, NOW, said)
    assert found == (None if seconds is None else pytest.approx(seconds))
    assert retry_after({"retry-after": "3"}, None, NOW, said) == 3.0, "a header is more exact"


def test_azures_header() -> None:
    assert retry_after({"x-ms-retry-after-ms": "1500"}, None, NOW) == 1.5


def test_the_details_of_a_google_error() -> None:
    assert retry_after({}, [{"reason": "x"}, {"retryDelay": "3.5s"}], NOW) == 3.5
    assert retry_after({}, [{"retryDelay": 7}, None], NOW) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("34s", 34), ("1m30s", 90), ("20ms", 0.02), ("2h", 7200), ("12", 12), ("", None), ("1x", None), ("s", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@RELAXED
@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-tokens"]), st.text()
    )
)
def test_nonsense_never_raises_and_never_goes_back_in_time(headers: dict[str, str]) -> None:
    found = retry_after({**headers, "x-ratelimit-remaining-tokens": "0"}, None, NOW)
    assert found is None or found >= 0
