"""Intervals of an evaluation."""

from __future__ import annotations

import pytest

from retinue.recordings.case_run import read_score
from retinue.recordings.suite import CaseScore, mean_interval, paired_difference, wilson


@pytest.mark.parametrize(
    ("passes", "runs", "low", "high"),
    [(0, 0, 0.0, 1.0), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (5, 10, 0.237, 0.763), (80, 100, 0.711, 0.867)],
)
def test_a_pass_rate_has_the_interval_of_wilson(passes: int, runs: int, low: float, high: float) -> None:
    found = wilson(passes, runs)
    assert (found.low, found.high) == (pytest.approx(low, abs=0.001), pytest.approx(high, abs=0.001))


def test_the_same_values_have_the_same_interval_and_it_holds_their_mean() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    found = mean_interval(values)
    assert found == mean_interval(values) and found.low <= found.value == 4.0 <= found.high
    assert mean_interval([2.0]).low == mean_interval([2.0]).high == 2.0


def test_a_difference_is_taken_case_by_case_where_both_have_run() -> None:
    cases = [CaseScore("a", (0, 3), (3, 3)), CaseScore("b", (3, 3), (3, 3)), CaseScore("c", (3, 0), (3, 0))]
    found = paired_difference(cases)
    assert found is not None and found.value == 0.5
    assert paired_difference([CaseScore("c", (3, 0), (3, 0))]) is None


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ('{"score": 0.9, "reason": "good"}', 0.9),
        ('Here: {"score": 1, "reason": "x"} thanks', 1.0),
        ('{"score": 2}', None),
        ('{"score": true}', None),
        ("none", None),
        ("{broken", None),
    ],
)
def test_the_score_of_a_judge_is_read_or_refused(said: str, score: float | None) -> None:
    assert read_score(said)[0] == score
