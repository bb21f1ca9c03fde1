"""The parts of a conversation that a person went back behind are left out."""

from __future__ import annotations

from retinue.app.history import left_spans


def test_going_back_leaves_what_lies_between() -> None:
    assert left_spans([("run", 10, 4)]) == {"run": [(4, 10)]}


def test_going_back_behind_an_earlier_going_back() -> None:
    # At 20 back to 3: the going back at 10 is itself left.
    assert left_spans([("run", 20, 3), ("run", 10, 4)]) == {"run": [(3, 20)]}


def test_going_back_twice_after_each_other() -> None:
    assert left_spans([("run", 20, 12), ("run", 10, 4)]) == {"run": [(12, 20), (4, 10)]}
