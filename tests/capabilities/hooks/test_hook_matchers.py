"""Which handlers apply to an event: matchers with the names of both dialects, conditions, names of points."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.capabilities.hooks.bus import applies_to, from_dialect, matches, rule_condition, to_dialect
from retinue.capabilities.hooks.sources import POINTS, events_of, from_spec
from retinue.core.permission import HookEvent
from retinue.core.spec import HookSpec


@pytest.mark.parametrize(
    ("matcher", "subject", "wanted"),
    [
        ("", "bash", True),
        ("*", "bash", True),
        ("Bash", "bash", True),
        ("bash", "bash", True),
        ("execute_command", "bash", True),
        ("Bash", "edit", False),
        ("Edit|Write", "edit", True),
        ("Edit|Write", "write", True),
        ("Edit, Write", "write", True),
        ("Edit|Write", "read", False),
        ("MultiEdit", "edit", True),
        ("Task", "Agent", True),
        ("Agent", "Agent", True),
        ("Glob", "find", True),
        ("Ba", "bash", False),
        ("mcp__.*", "mcp__github__search", True),
        ("mcp__github__.*", "mcp__gitlab__search", False),
        ("mcp__github__search", "mcp__github__search", True),
        ("^Bash$", "bash", True),
        ("Notebook.*", "edit", True),
        ("Web.*", "fetch_content", True),
        ("Web.*", "bash", False),
        ("(", "bash", True),
    ],
)
def test_matchers(matcher: str, subject: str, wanted: bool) -> None:
    assert matches(matcher, "PreToolUse", subject) is wanted


def test_a_matcher_that_is_no_expression_matches_only_where_it_guards() -> None:
    assert matches("(", "PreToolUse", "bash")
    assert not matches("(", "PostToolUse", "bash")


def test_agents_and_sources_match_exactly() -> None:
    assert matches("Explore", "SubagentStop", "Explore")
    assert not matches("Bash", "SubagentStop", "bash")
    assert matches("startup|resume", "SessionStart", "resume")


def listener(event: str, **raw: Any) -> Any:
    (made, *_), _ = from_spec(
        HookSpec(event, {"command": "x", **raw}, raw.pop("matcher", None)), source="", dialect="claude"
    )
    return made


def test_a_matcher_is_ignored_where_there_is_nothing_to_match(tmp_path: Path) -> None:
    one = listener("UserPromptSubmit", matcher="Bash")
    assert applies_to(one, "UserPromptSubmit", "", {}, rule_condition(tmp_path))


@pytest.mark.parametrize(
    ("rule", "command", "wanted"),
    [
        ("Bash(git *)", "git push", True),
        ("Bash(git *)", "ls", False),
        ("Bash(git *)", "ls && git push", True),
        ("Bash", "ls", True),
        ("Edit", "ls", False),
        ("Bash(git *)", "$TOOL push", True),
        ("Bash(git *)", "git 'unclosed", True),
        ("Bash(", "ls", True),
        ("", "ls", True),
    ],
)
def test_a_condition_is_a_permission_rule_and_runs_the_guard_in_doubt(
    tmp_path: Path, rule: str, command: str, wanted: bool
) -> None:
    payload = {"tool_input": {"command": command}}
    one = listener("PreToolUse", **{"if": rule})
    assert applies_to(one, "PreToolUse", "bash", payload, rule_condition(tmp_path)) is wanted


def test_in_doubt_a_mere_observer_does_not_run(tmp_path: Path) -> None:
    payload = {"tool_input": {"command": "$TOOL push"}}
    one = listener("PostToolUse", **{"if": "Bash(git *)"})
    assert not applies_to(one, "PostToolUse", "bash", payload, rule_condition(tmp_path))


def test_a_condition_on_another_event_never_holds(tmp_path: Path) -> None:
    one = listener("Stop", **{"if": "Bash"})
    assert not applies_to(one, "Stop", "", {}, rule_condition(tmp_path))


@given(st.text(max_size=40), st.sampled_from(get_args(HookEvent)), st.text(max_size=20))
def test_no_matcher_raises(matcher: str, event: HookEvent, subject: str) -> None:
    assert matches(matcher, event, subject) in (True, False)


@given(st.text(max_size=40), st.text(max_size=60))
def test_no_condition_raises(rule: str, command: str) -> None:
    one = listener("PreToolUse", **{"if": rule})
    applies_to(one, "PreToolUse", "bash", {"tool_input": {"command": command}}, rule_condition(Path("/tmp")))


def test_every_point_of_codingcode_is_known() -> None:
    for point, events in POINTS.items():
        assert events_of(point) == events
        assert all(event in get_args(HookEvent) for event in events)
    assert events_of("PreToolUse") == ("PreToolUse",)
    assert events_of("SomethingElse") is None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "a", "offset": 3}),
        ("write", {"path": "a", "content": "b"}),
        ("edit", {"path": "a", "old_string": "x", "new_string": "y", "replace_all": True}),
        (
            "edit",
            {"path": "a", "edits": [{"old_string": "x", "new_string": "y"}, {"old_string": "1", "new_string": "2"}]},
        ),
        ("bash", {"command": "ls", "timeout": 3}),
        ("grep", {"pattern": "x", "path": "a"}),
        ("mcp__a__b", {"path": "a"}),
    ],
)
@pytest.mark.parametrize("dialect", ["retinue", "claude", "codingcode"])
def test_an_input_that_a_hook_gives_back_unchanged_is_unchanged(
    tool: str, arguments: dict[str, Any], dialect: Any
) -> None:
    said = to_dialect({"tool_name": tool, "tool_input": arguments}, dialect)
    assert from_dialect(tool, said["tool_input"], dialect) == arguments


def test_scripts_for_claude_code_find_its_words() -> None:
    edits = [{"old_string": "x", "new_string": "y"}]
    said = to_dialect({"tool_name": "edit", "tool_input": {"path": "a", "edits": edits}}, "claude")
    assert said["tool_name"] == "Edit"
    assert said["tool_input"] == {"file_path": "a", "old_string": "x", "new_string": "y"}
    assert from_dialect("edit", {"file_path": "b", "old_string": "x", "new_string": "z"}, "claude") == {
        "path": "b",
        "old_string": "x",
        "new_string": "z",
    }
    several = to_dialect({"tool_name": "edit", "tool_input": {"path": "a", "edits": [*edits, *edits]}}, "claude")
    assert several["tool_name"] == "MultiEdit"
    beside = {"path": "a", "old_string": "1", "new_string": "2", "edits": edits}
    both = to_dialect({"tool_name": "edit", "tool_input": beside}, "claude")
    assert both["tool_input"]["edits"] == [{"old_string": "1", "new_string": "2"}, *edits]
