"""The three orders in which runs call capabilities: a change of one changes what runs do, so each is pinned here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from retinue.capabilities.orders import standard_capabilities
from retinue.runs.capability import Capability

ORDERS = standard_capabilities()


def names(order: Iterable[Capability]) -> list[str]:
    return [type(capability).__module__.rpartition(".")[2] for capability in order]


def overriding(method: Callable[..., Any]) -> list[str]:
    """Return the capabilities that do something at this moment, in the order of plans."""
    name = method.__name__
    return names(capability for capability in ORDERS.plan if name in type(capability).__dict__)


def test_a_plan_is_restricted_offered_equipped_and_briefed_in_this_order() -> None:
    assert overriding(Capability.restrict) == ["trust", "permissions", "hooks", "worktree", "telemetry"]
    assert overriding(Capability.offer) == ["permissions", "skills", "plugins", "mcp", "lsp"]
    assert overriding(Capability.equip) == ["skills", "memory", "mcp", "worktree"]
    assert overriding(Capability.brief) == ["skills", "memory", "worktree"]
    assert overriding(Capability.admit) == ["hooks", "worktree"]


def test_runs_are_opened_in_this_order_and_released_in_the_opposite_one() -> None:
    first = ["permissions", "skills", "memory", "mcp", "hooks", "worktree", "sandbox", "audit", "lsp"]
    assert overriding(Capability.running) == [*first, "convert", "web", "questions", "telemetry"]


def test_a_prompt_is_expanded_by_skills_then_commands_then_the_files_they_name() -> None:
    assert overriding(Capability.expand_prompt) == ["skills", "commands", "attachments"]


def test_tools_are_wrapped_from_the_inside_out_in_this_order() -> None:
    assert names(ORDERS.wrap) == ["audit", "lsp", "permissions", "worktree"]


def test_a_run_is_finished_in_this_order() -> None:
    assert names(ORDERS.finish) == ["questions", "permissions", "hooks", "audit", "worktree", "telemetry"]


def test_every_capability_that_finishes_is_in_the_order_for_it() -> None:
    assert sorted(names(ORDERS.finish)) == sorted(overriding(Capability.finish))


def test_capabilities_of_a_program_wrap_innermost_and_finish_last() -> None:
    more = Capability()
    orders = standard_capabilities(more)
    assert orders.plan[-1] is orders.wrap[0] is orders.finish[-1] is more
    assert [names(order)[1:] for order in (orders.wrap, orders.finish)] == [
        names(ORDERS.wrap),
        names(orders.finish)[1:],
    ]
