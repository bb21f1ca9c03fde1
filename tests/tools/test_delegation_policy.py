"""The few lines that tell the main agent when to delegate, and to whom."""

from __future__ import annotations

import pytest

from retinue.agents.catalog import Catalog
from retinue.core.spec import AgentSpec
from retinue.runs.offer import delegation_policy


@pytest.fixture
def builtins(tmp_path):
    return [entry.spec for entry in Catalog.load(tmp_path, environment={"HOME": str(tmp_path)}).agents]


def test_the_policy_is_what_was_agreed(builtins):
    assert delegation_policy(builtins) == (
        "Delegation (Agent)\n"
        "- Do yourself what a few calls settle. Delegate wide reading, long or separable work, and a second look at "
        "what you made."
    )


def test_devkits_five_agents_are_routed_in_its_own_vocabulary(builtins):
    text = delegation_policy(builtins, "devkit")
    assert text.startswith("Delegation (subagent)\n")
    for name in ("explorer", "implementer", "reviewer", "tester", "researcher"):
        assert f": {name}" in text
    assert ": Explore;" not in text
    assert "dispatch_agent" in delegation_policy(builtins, "codingcode")


def test_only_agents_that_can_be_started_are_named(builtins):
    text = delegation_policy([spec for spec in builtins if spec.name != "tester"], "devkit")
    assert "tester" not in text
    assert "; review: reviewer" in text


def test_a_built_in_route_gives_way_to_an_agent_of_the_users_own(builtins):
    own = AgentSpec(name="reviewer", description="Reviews poems. Use proactively.", source="project")
    text = delegation_policy([*(spec for spec in builtins if spec.name != "reviewer"), own], "devkit")
    assert "review: reviewer" not in text
    assert text.endswith("\n- Unasked, when they fit: reviewer.")


def test_agents_of_the_user_alone_need_no_routes_and_no_agents_no_policy():
    text = delegation_policy([AgentSpec(name="x", description="Does things", source="user")])
    assert "Route" not in text
    assert "{{" not in text
    assert delegation_policy([]) == ""
    many = [AgentSpec(name=f"a{number}", description="PROACTIVELY use", source="user") for number in range(20)]
    assert "a11 and 8 more." in delegation_policy(many)
