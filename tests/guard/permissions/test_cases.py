"""The corpus: every (mode, rules, call) of cases.txt gets the decision that stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.guard.permissions.corpus import Case, cases, policy, use, workspace

ALL = list(cases())


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return workspace(tmp_path_factory.mktemp("corpus"))


def test_there_are_enough_cases() -> None:
    assert len(ALL) >= 300


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_decision(case: Case, scene: tuple[Path, Path]) -> None:
    decision = policy(case.block, *scene).decide(use(case, *scene))
    verdict, _, judge = case.expected.partition("/")
    assert (decision.verdict, decision.by if judge else "") == (verdict, judge), decision
    assert decision.reason.endswith("."), decision
