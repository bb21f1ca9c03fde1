"""Budgets of trees: reserved from the parent, returned, kept (B13; bugs 35 and 36 of §5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.usage import Limits, Usage
from retinue.errors import LaunchError, UsageError
from retinue.runs.budget import Account, Budget, of_settings
from retinue.settings.table import Settings
from retinue.testing import FakeClock, ModelInfo, Prices


def tokens(count: int, cost: float | None = 0.0) -> Usage:
    return Usage(input=count, cost_usd=cost)


def test_a_child_reserves_from_its_parent_and_returns_what_it_did_not_spend() -> None:
    parent = Account(Budget(tokens=1_000))
    child = Account(Budget(tokens=600), parent)
    assert parent.remaining().tokens == 400 and child.remaining().tokens == 600
    child.charge(tokens(250))
    assert (parent.remaining().tokens, child.remaining().tokens) == (400, 350)
    child.close()
    assert parent.remaining().tokens == 750
    child.close()
    assert parent.remaining().tokens == 750, "closing again returns nothing again"


def test_a_child_gets_no_more_than_its_parent_has() -> None:
    parent = Account(Budget(tokens=100))
    first, second, third = (Account(Budget(tokens=60), parent) for _ in range(3))
    assert [child.remaining().tokens for child in (first, second, third)] == [60, 40, 0]
    assert parent.remaining().tokens == 0


def test_ml_commons_4820_zero_left_means_zero_and_never_unlimited() -> None:
    parent = Account(Budget(usd=1.0))
    parent.charge(tokens(10, cost=1.0))
    for child in (Account(parent=parent), Account(Budget(usd=5.0), parent), Account(Budget(tokens=5), parent)):
        verdict = child.verdict()
        assert verdict is not None and (verdict.limit, verdict.wrap_up) == ("cost", False)
        assert child.remaining().usd == 0.0
        assert Account(Budget(usd=1.0), child).remaining().usd == 0.0
    refusal = parent.refuse_spawn()
    assert refusal is not None and refusal.startswith("Budget limit reached")


def test_a_child_without_a_limit_spends_from_its_parents() -> None:
    parent = Account(Budget(tokens=1_000))
    children = [Account(parent=parent) for _ in range(3)]
    for child in children:
        child.charge(tokens(300))
    assert {account.remaining().tokens for account in (parent, *children)} == {100}
    assert parent.verdict() is None, "the parent itself has made no request yet: its share is not known to be small"


def test_bug_36_spend_is_attributed_to_every_ancestor() -> None:
    root = Account()
    middle = Account(Budget(tokens=10_000), root)
    leaf = Account(parent=middle)
    leaf.charge(Usage(100, 20, 5_000, 30, 0.25), turns=1)
    middle.charge(Usage(10, 2, 0, 3, 0.01), turns=1)
    assert leaf.usage == Usage(100, 20, 5_000, 30, 0.25)
    assert root.usage == middle.usage == Usage(110, 22, 5_000, 33, 0.26)


def test_bug_35_reading_the_cache_again_and_again_uses_up_no_tokens() -> None:
    account = Account(Budget(tokens=100))
    for _ in range(10):
        account.charge(Usage(cache_read=100_000, input=1, output=1))
    assert account.remaining().tokens == 80


def test_limits_on_every_kind_are_kept_apart() -> None:
    root = Account(Budget(tokens=100, usd=1.0, turns=10, tool_calls=5, spawns=3))
    child = Account(Budget(turns=4), root)
    child.charge(tokens(30, cost=0.25), turns=1, tool_calls=2)
    assert root.remaining() == Budget(tokens=70, usd=0.75, turns=6, tool_calls=3, spawns=2)
    assert child.remaining() == Budget(tokens=70, usd=0.75, turns=3, tool_calls=3, spawns=2)


def test_spawns_count_at_any_depth_and_a_resumed_run_is_none() -> None:
    root = Account(Budget(spawns=3))
    child = Account(parent=root)
    grandchild = Account(parent=child)
    Account(parent=root, resumed=Usage())
    assert grandchild.refuse_spawn() is None and grandchild.remaining().spawns == 1
    Account(parent=grandchild)
    for account in (root, child, grandchild):
        refusal = account.refuse_spawn()
        assert refusal is not None and "3 of 3 agents" in refusal
        assert account.verdict() is None, "those that run may finish"


def test_a_resumed_run_goes_on_where_its_money_stood() -> None:
    root = Account(Budget(usd=2.0), resumed=Usage(input=9, cost_usd=1.5))
    assert root.remaining().usd == 0.5
    child = Account(Budget(usd=1.0, turns=5), root, resumed=Usage(cost_usd=0.8))
    assert child.remaining() == Budget(usd=pytest.approx(0.2), turns=5)
    assert root.remaining().usd == pytest.approx(0.3)
    spent = Account(Budget(usd=1.0), resumed=Usage(cost_usd=7.0))
    verdict = spent.verdict()
    assert verdict is not None and not verdict.wrap_up


def test_the_owner_of_a_budget_may_still_collect_what_its_children_found() -> None:
    root = Account(Budget(tokens=1_000))
    child = Account(Budget(tokens=1_000), root)
    assert root.remaining().tokens == 0 and root.refuse_spawn() is not None
    assert root.verdict() is None
    root.charge(tokens(100))
    child.charge(tokens(899))
    verdict = child.verdict()
    assert verdict is not None and verdict.wrap_up, "the ceiling of the tree holds for the child"
    child.charge(tokens(1))
    for account in (root, child):
        verdict = account.verdict()
        assert verdict is not None and not verdict.wrap_up


def test_others_that_share_a_budget_may_not_touch_what_is_set_aside() -> None:
    root = Account(Budget(tokens=1_000))
    sharing = Account(parent=root)
    Account(Budget(tokens=1_000), root)
    verdict = sharing.verdict()
    assert verdict is not None and not verdict.wrap_up and "reserved" in verdict.text


def test_a_run_wraps_up_while_its_share_still_pays_for_it() -> None:
    account = Account(Budget(tokens=1_000))
    account.charge(tokens(300), turns=1)
    account.charge(tokens(300), turns=1)
    assert account.verdict() is None, "400 left pay for another turn"
    account.charge(tokens(100), turns=1)
    account.charge(tokens(200), turns=1)
    verdict = account.verdict()
    assert verdict is not None and verdict.wrap_up and verdict.limit == "tokens"
    assert "100 of 1000 tokens" in verdict.text


def test_the_more_agents_share_a_budget_the_earlier_they_wrap_up() -> None:
    root = Account(Budget(tokens=1_000))
    children = [Account(parent=root) for _ in range(4)]
    for child in children:
        child.charge(tokens(100), turns=1)
    verdicts = [child.verdict() for child in children]
    assert all(verdict is not None and verdict.wrap_up for verdict in verdicts), "600 left for five, 100 a turn"
    for child in children[1:]:
        child.close()
    assert children[0].verdict() is None


def test_seconds_pass_for_everyone_at_once() -> None:
    clock = FakeClock()
    root = Account(Budget(seconds=100.0), clock=clock)
    clock._passed = 30.0
    child = Account(Budget(seconds=50.0), root)
    patient = Account(Budget(seconds=500.0), root)
    assert (root.remaining().seconds, child.remaining().seconds, patient.remaining().seconds) == (70.0, 50.0, 70.0)
    assert child.bounded(Limits(seconds=10.0)).seconds == 10.0
    assert child.bounded(Limits()).seconds == 50.0
    clock._passed = 100.0
    for account in (root, child, patient):
        verdict = account.verdict()
        assert verdict is not None and verdict.limit == "time" and account.refuse_spawn() is not None
    assert child.bounded(Limits()).seconds == 0.0


PRICED = ModelInfo("anthropic", "m", prices=Prices(1.0, 5.0))
UNPRICED = ModelInfo("own", "m")


def test_a_model_without_a_price_is_refused_where_dollars_are_counted() -> None:
    root = Account(Budget(usd=5.0))
    child = Account(Budget(tokens=5), root)
    child.check_model(PRICED)
    Account(Budget(tokens=5)).check_model(UNPRICED)
    with pytest.raises(LaunchError, match=r"own/m.*\$5\.00") as caught:
        child.check_model(UNPRICED)
    assert "budget.allowUnpriced" in caught.value.remedy
    Account(parent=Account(Budget(usd=5.0), allow_unpriced=True)).check_model(UNPRICED)


def test_a_request_whose_cost_turns_out_unknown_is_the_last() -> None:
    account = Account(Budget(usd=5.0))
    account.charge(tokens(10, cost=None), turns=1)
    verdict = account.verdict()
    assert verdict is not None and not verdict.wrap_up and account.usage.cost_usd is None
    uncounted = Account(Budget(usd=5.0))
    uncounted.charge(Usage(cost_usd=None), turns=1)
    assert uncounted.verdict() is not None, "a turn whose server sent no usage was not free"
    allowed = Account(Budget(usd=5.0), allow_unpriced=True)
    allowed.charge(tokens(10, cost=None), turns=1)
    assert allowed.verdict() is None
    failed = Account(Budget(usd=5.0))
    failed.charge(Usage(cost_usd=None))
    assert failed.verdict() is None, "a request that never happened costs nothing"


def test_the_budget_of_settings() -> None:
    settings = Settings({"budget_usd": 2.5, "budget_spawns": 0, "budget_tool_calls": 7})
    assert of_settings(settings) == Budget(usd=2.5, spawns=0, tool_calls=7)
    assert of_settings(Settings()) == Budget()


def test_the_budget_of_a_file_or_a_call() -> None:
    assert Budget.read({"usd": 0.5, "toolCalls": 40, "turns": 0}) == Budget(usd=0.5, tool_calls=40, turns=0)
    assert Budget.read({"usd": None}) == Budget()
    tight = Budget(tokens=5, usd=2.0).within(Budget(tokens=9, usd=1.0, turns=3))
    assert tight == Budget(tokens=5, usd=1.0, turns=3)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        5,
        [],
        "5 USD",
        {"usd": "5"},
        {"usd": -1},
        {"usd": float("nan")},
        {"usd": float("inf")},
        {"tokens": 1.5},
        {"tokens": True},
        {"tokens": 10**400},
        {"euro": 5},
        {3: 5},
    ],
)
def test_a_budget_that_is_misread_never_becomes_no_budget(raw: Any) -> None:
    with pytest.raises(UsageError, match="budget"):
        Budget.read(raw)
