"""What a run on another machine may spend is set aside before it leaves, and never more than its tree has left."""

from pathlib import Path

import pytest

from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec
from retinue.core.usage import Budget, Usage
from retinue.runs.budget import Account
from retinue.runs.remote import with_own_budget
from retinue.settings.load import load_settings


@pytest.fixture
def settings(tmp_path):
    return load_settings(tmp_path, environment={"RETINUE_MAX_CONCURRENT": "4", "HOME": str(tmp_path)}).settings


def request(**fields):
    return RunRequest(spec=AgentSpec(name="a", description="b"), task="t", cwd=Path("/"), **fields)


def test_a_share_of_what_is_left_and_all_shares_together_are_no_more(settings):
    tree = Account(Budget(tokens=1000, usd=1.0, spawns=9))
    accounts = []
    for _ in range(20):
        wanted = with_own_budget(request(), settings, tree)
        accounts.append(Account(wanted.budget, tree))
    assert accounts[0].remaining().tokens == 250
    assert sum(each.remaining().tokens for each in accounts) <= 1000
    assert sum(each.remaining().usd for each in accounts) <= 1.0


def test_what_the_call_says_is_not_widened(settings):
    tree = Account(Budget(tokens=1000))
    assert with_own_budget(request(budget=Budget(tokens=10)), settings, tree).budget.tokens == 10
    assert with_own_budget(request(budget=Budget(tokens=999)), settings, tree).budget.tokens == 250


def test_without_a_limit_there_is_nothing_to_set_aside(settings):
    assert with_own_budget(request(), settings, Account()).budget is None
    assert with_own_budget(request(), settings, None).budget is None


def test_what_it_did_not_spend_goes_back(settings):
    tree = Account(Budget(tokens=1000))
    there = Account(with_own_budget(request(), settings, tree).budget, tree)
    assert tree.remaining().tokens == 750
    there.charge(Usage(input=100))
    there.close()
    assert tree.remaining().tokens == 900
