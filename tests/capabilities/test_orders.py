"""The three orders in which runs call capabilities: a change of one changes what runs do, so each is pinned here."""

from __future__ import annotations

from retinue.capabilities import standard_capabilities


def names(method: str, order: str = "plan") -> list[str]:
    called = standard_capabilities().each(method, order)
    return [type(each.__self__).__module__.rpartition(".")[2] for each in called]


def test_a_plan_is_restricted_offered_equipped_and_briefed_in_this_order() -> None:
    assert names("restrict") == ["trust", "permissions", "hooks", "worktree", "telemetry"]
    assert names("offer") == ["permissions", "skills", "plugins", "mcp", "lsp", "observer"]
    assert names("equip") == ["skills", "memory", "mcp", "worktree", "observer"]
    assert names("brief") == ["skills", "memory", "worktree"]
    assert names("admit") == ["hooks", "worktree"]
    assert names("open") == ["memory", "mcp", "hooks", "audit", "questions", "observer"]
    assert names("context") == ["worktree", "sandbox", "audit", "convert", "web", "questions", "telemetry"]


def test_a_prompt_is_expanded_by_skills_then_commands_then_the_files_they_name() -> None:
    assert names("expand_prompt") == ["skills", "commands", "attachments"]


def test_tools_are_wrapped_from_the_inside_out_in_this_order() -> None:
    assert names("wrap", "wrap") == ["audit", "lsp", "permissions", "worktree"]


def test_a_run_is_finished_and_closed_in_this_order() -> None:
    finished = ["observer", "questions", "permissions", "hooks", "audit", "worktree", "telemetry"]
    assert names("finish", "finish") == finished
    assert names("close", "finish") == ["observer", "questions", "permissions", "hooks", "mcp"]


def test_every_capability_that_wraps_or_finishes_is_in_the_order_for_it() -> None:
    assert {each for each in standard_capabilities().names if overrides(each, "wrap")} == set(names("wrap", "wrap"))
    for method in ("finish", "close"):
        overriding = {each for each in standard_capabilities().names if overrides(each, method)}
        assert overriding == set(names(method, "finish"))


def overrides(name: str, method: str) -> bool:
    return method in type(standard_capabilities().names[name]).__dict__
