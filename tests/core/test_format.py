"""Numbers as people read them (cases V01 to V04)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.format import (
    context_percent,
    format_cost,
    format_count,
    format_duration,
    format_tokens,
    format_wait,
    retry_text,
    session_tokens,
    urgency,
)
from retinue.core.usage import Usage


def test_tokens_with_window_and_compactions():
    assert format_tokens(1234) == "1.2k token"
    assert format_tokens(950) == "950 token"
    assert format_tokens(33_800, 62) == "33.8k token (62%)"
    assert format_tokens(1234, compactions=1) == "1.2k token (⇊1)"
    assert format_tokens(1234, 45, 2) == "1.2k token (45% · ⇊2)"
    assert format_tokens(1234, 45, 0) == "1.2k token (45%)"


@pytest.mark.parametrize(
    ("percent", "level"), [(50, "dim"), (69.9, "dim"), (70, "warning"), (84, "warning"), (85, "error"), (99, "error")]
)
def test_urgency_of_a_filling_window(percent, level):
    assert urgency(percent) == level


def test_counts_change_their_unit_before_they_would_read_1000k():
    assert (format_count(999), format_count(999_949), format_count(999_950), format_count(-3)) == (
        "999",
        "999.9k",
        "1.0M",
        "0",
    )


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0.0042, "~$0.0042"),
        (0.0123, "~$0.0123"),
        (1.239, "~$1.24"),
        (0.05, "~$0.05"),
        (0.4, "~$0.40"),
        (12, "~$12.00"),
        (0, ""),
        (math.nan, ""),
        (math.inf, ""),
        (-1, ""),
        (None, ""),
        (0.00002, "<$0.0001"),
    ],
)
def test_cost(dollars, text):
    assert format_cost(dollars) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0s"),
        (-5, "0.0s"),
        (12_300, "12.3s"),
        (59_999, "60.0s"),
        (60_000, "1m"),
        (72_000, "1m 12s"),
        (723_100, "12m 3s"),
        (3_599_999, "59m 59s"),
        (3_600_000, "1h"),
        (3_900_000, "1h 5m"),
        (7_470_000, "2h 4m"),
    ],
)
def test_duration(milliseconds, text):
    assert format_duration(milliseconds) == text


def test_waiting():
    assert [format_wait(seconds) for seconds in (45, 60, 270, -1)] == ["45s", "1m", "4m 30s", "0s"]


def test_tokens_shown_leave_cache_reads_and_money_out():
    assert session_tokens(Usage(10, 5, 1_000, 2, 0.5)) == 17
    assert session_tokens(None) == 0
    assert context_percent(None, 100) is None
    assert context_percent(50, None) is None
    assert context_percent(0, 100) is None
    assert context_percent(50, 200) == 25


@given(st.lists(st.builds(Usage, *[st.integers(0, 10**6)] * 4), max_size=20))
def test_a_lifetime_total_only_grows(parts):
    total, seen = Usage(), 0
    for part in parts:
        total = total + part
        assert session_tokens(total) >= seen
        seen = session_tokens(total)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("answered 529: Overloaded", "answered 529: Overloaded. Trying again in 0.4 s (attempt 1)."),
        ("It is busy.", "It is busy. Trying again in 0.4 s (attempt 1)."),
    ],
)
def test_a_retry_is_said_in_whole_sentences_with_the_time_it_takes(problem, expected):
    assert retry_text(problem, 0.42, 1) == expected
    assert "(attempt 1 of 15)" in retry_text(problem, 0.42, 1, 15)


def test_a_retry_without_a_pause_is_not_one_in_no_seconds():
    assert retry_text("Overloaded", 0.0, 2) == "Overloaded. Trying again now (attempt 2)."


def test_a_model_that_takes_over_is_no_further_attempt_after_no_time_at_all():
    assert retry_text("answered 404: no such model", 0.0, 0) == "answered 404: no such model. Another model is asked."
