"""What an automatic repair may never add."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from retinue.agents.convert import adds_rights
from retinue.agents.lint.checks import distance, nearest
from retinue.core.spec import AgentSpec, HookSpec, ServerRef, ToolPolicy

OPEN = AgentSpec(name="a")
HOOK = HookSpec("PreToolUse", {"command": "x"})


def spec(**fields: object) -> AgentSpec:
    return replace(OPEN, **fields)


LESS = [
    (spec(), spec(tools=ToolPolicy(allow=("Read",)))),
    (spec(tools=ToolPolicy(allow=("Read", "Write"))), spec(tools=ToolPolicy(allow=("Read",)))),
    (spec(), spec(tools=ToolPolicy(deny=("Bash",)))),
    (spec(), spec(tools=ToolPolicy(extensions=False))),
    (spec(), spec(tools=ToolPolicy(extensions=("a",)))),
    (spec(), spec(tools=ToolPolicy(exclude_extensions=("a",)))),
    (spec(), spec(permission_mode="plan")),
    (spec(), spec(permission_mode="default")),
    (spec(), spec(readonly=True)),
    (spec(), spec(max_turns=5)),
    (spec(max_turns=0), spec(max_turns=5)),
    (spec(max_turns=9), spec(max_turns=5)),
    (spec(), spec(isolation="worktree")),
    (spec(), spec(isolated=True)),
    (spec(), spec(subagents=False)),
    (spec(subagents=("a", "b")), spec(subagents=("b",))),
    (spec(), spec(enabled=False)),
    (spec(), spec(timeout_seconds=3.0)),
    (spec(servers=(ServerRef("a"),)), spec(servers=())),
]

MORE_ONLY = [
    (spec(), spec(permission_mode="bypassPermissions")),
    (spec(), spec(permission_mode="acceptEdits")),
    (spec(), spec(servers=(ServerRef("a"),))),
    (spec(), spec(hooks=(HOOK,))),
    (spec(hooks=(HOOK,)), spec()),
    (spec(), spec(memory="user")),
    (spec(), spec(inherit_context=True)),
    (spec(), spec(subagents=("a",))),
    (spec(), spec(subagents=True)),
    (spec(), spec(max_turns=0)),
    (spec(tools=ToolPolicy(allow=())), spec(tools=ToolPolicy(allow=(), selectors=("ext:a",)))),
    (spec(tools=ToolPolicy(allow=("Read",))), spec(tools=ToolPolicy(allow=("Write",)))),
]


@pytest.mark.parametrize(("old", "new"), LESS)
def test_taking_rights_away_is_allowed_and_giving_them_back_is_not(old: AgentSpec, new: AgentSpec) -> None:
    assert not adds_rights(old, new)
    assert adds_rights(new, old)


@pytest.mark.parametrize(("old", "new"), MORE_ONLY)
def test_new_rights_are_noticed(old: AgentSpec, new: AgentSpec) -> None:
    assert adds_rights(old, new)


def test_texts_are_no_rights() -> None:
    assert not adds_rights(spec(description="a"), spec(description="b", prompt="c", color="red"))


def test_distance_counts_a_swap_as_one() -> None:
    assert distance("tools", "tolos") == 1
    assert distance("tools", "tools") == 0
    assert distance("a", "abcdef") == 3


@pytest.mark.parametrize(
    ("word", "meant"),
    [("maxturns", "maxTurns"), ("permision_mode", "permissionMode"), ("tolls", "tools"), ("colour", "color")],
)
def test_nearest_finds_what_was_meant(word: str, meant: str) -> None:
    assert nearest(word, ["maxTurns", "permissionMode", "tools", "color", "model"]) == meant


@pytest.mark.parametrize("word", ["", "tag", "category", "emoji", "mode"])
def test_nearest_does_not_guess_far(word: str) -> None:
    assert nearest(word, ["maxTurns", "permissionMode", "tools", "color", "name"]) is None
