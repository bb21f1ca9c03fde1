"""pi's agent files: the conformance cases A05-A34 that concern one file."""

from __future__ import annotations

from typing import Any

import pytest
from agent_file import read_agent

from retinue.core.spec import AgentSpec


def pi(*lines: str, body: str = "Prompt.", file: str = "worker.md") -> Any:
    text = "\n".join(["---", *lines, "---", body])
    return read_agent(text, f".pi/agents/{file}")


def spec(*lines: str, **options: Any) -> AgentSpec:
    found = pi(*lines, **options).spec
    assert found is not None
    return found


def test_every_field_arrives_with_its_type() -> None:
    found = spec(
        "description: Does it",
        "display_name: Worker",
        "color: blue",
        "tools: read, bash",
        "model: anthropic/claude-haiku-4-5",
        "thinking: high",
        "max_turns: 12",
        "prompt_mode: append",
        "inherit_context: true",
        "run_in_background: true",
        "isolated: true",
        "extensions: a, b",
        "skills: [x, y]",
        "memory: project",
        "isolation: worktree",
        "persist_session: false",
        "session_dir: ~/sessions",
        "output_transcript: true",
    )
    assert found.name == "worker"
    assert (found.description, found.display_name, found.color) == ("Does it", "Worker", "blue")
    assert found.tools.allow == ("read", "bash")
    assert found.tools.extensions == ("a", "b")
    assert (found.model.name, found.model.thinking) == ("anthropic/claude-haiku-4-5", "high")
    assert (found.max_turns, found.prompt_mode) == (12, "append")
    assert (found.inherit_context, found.background, found.isolated) == (True, True, True)
    assert (found.skills, found.memory, found.isolation) == (("x", "y"), "project", "worktree")
    assert found.session.persist is False
    assert (found.session.directory, found.session.transcript) == ("~/sessions", True)
    assert found.prompt == "Prompt."


def test_a_file_without_frontmatter_is_all_prompt() -> None:
    parsed = read_agent("# Envy\n\nYou classify.\n", ".pi/agents/envy.md")
    assert parsed.spec is not None
    assert (parsed.spec.name, parsed.spec.description) == ("envy", "envy")
    assert parsed.spec.prompt == "# Envy\n\nYou classify."
    assert parsed.spec.tools.allow is None


def test_an_empty_body_is_an_empty_prompt() -> None:
    assert spec("description: d", body="").prompt == ""


@pytest.mark.parametrize("value", ["none", "None", '""', "[]"])
def test_tools_none_means_no_tools(value: str) -> None:
    assert spec(f"tools: {value}").tools.allow == ()


def test_unknown_tools_are_kept() -> None:
    assert spec("tools: read, made_up").tools.allow == ("read", "made_up")


def test_extension_selectors_are_told_apart() -> None:
    tools = spec("tools: read, ext:foo, ext:bar/baz").tools
    assert (tools.allow, tools.selectors) == (("read",), ("ext:foo", "ext:bar/baz"))
    assert spec("tools: ext:foo").tools.allow == ()


@pytest.mark.parametrize("value", ['"*"', "all", "ALL"])
def test_every_tool(value: str) -> None:
    assert spec(f"tools: {value}").tools.allow is None
    both = spec("tools: all, ext:foo").tools
    assert (both.allow, both.selectors) == (None, ("ext:foo",))
    assert spec("tools: '*', made_up").tools.allow == ("read", "bash", "edit", "write", "grep", "find", "ls", "made_up")


def test_no_selectors_unless_they_are_written() -> None:
    assert spec("tools: read").tools.selectors == ()


@pytest.mark.parametrize(
    ("value", "meaning"),
    [("false", False), ("none", False), ('""', False), ("true", True), ("a, b", ("a", "b")), ("[a, b]", ("a", "b"))],
)
@pytest.mark.parametrize("key", ["extensions", "inherit_extensions"])
def test_extensions(key: str, value: str, meaning: object) -> None:
    assert spec(f"{key}: {value}").tools.extensions == meaning
    assert spec("description: d").tools.extensions is None


@pytest.mark.parametrize(("value", "meaning"), [("a, b", ("a", "b")), ("[a, b]", ("a", "b")), ("none", ()), ('""', ())])
def test_exclude_extensions(value: str, meaning: tuple[str, ...]) -> None:
    assert spec(f"exclude_extensions: {value}").tools.exclude_extensions == meaning


@pytest.mark.parametrize("value", ["max", "anything", "off", "no"])
def test_thinking_is_kept_as_it_is(value: str) -> None:
    assert spec(f"thinking: {value}").model.thinking == value


def test_an_unknown_prompt_mode_is_replace_and_reported() -> None:
    parsed = pi("prompt_mode: weird")
    assert parsed.spec is not None
    assert parsed.spec.prompt_mode == "replace"
    assert [problem.key for problem in parsed.problems] == ["prompt_mode"]


@pytest.mark.parametrize(
    ("value", "enabled"), [("false", False), ("False", False), ("FALSE # off", False), ("true", True)]
)
def test_only_false_disables(value: str, enabled: bool) -> None:
    assert spec(f"enabled: {value}").enabled is enabled


@pytest.mark.parametrize("value", ['"false"', "no", "off", "0"])
def test_what_only_looks_like_false_leaves_it_enabled_and_is_reported(value: str) -> None:
    parsed = pi(f"enabled: {value}")
    assert parsed.spec is not None
    assert parsed.spec.enabled
    assert [problem.key for problem in parsed.problems] == ["enabled"]


def test_disallowed_tools() -> None:
    assert spec("disallowed_tools: bash, write").tools.deny == ("bash", "write")
    assert spec("disallowed_tools:").tools.deny == ()
    assert pi("description: d").disallowed_tools is None


@pytest.mark.parametrize(
    ("value", "meaning"),
    [("worktree", "worktree"), ("off", "off"), ("none", "off"), ("no", "off"), ("false", "off"), ("container", None)],
)
def test_isolation(value: str, meaning: str | None) -> None:
    assert spec(f"isolation: {value}").isolation == meaning


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("all", True),
        ("'*'", True),
        ("true", True),
        ("a, b", ("a", "b")),
        ("false", False),
        ("none", False),
        ('""', False),
        ("", False),
    ],
)
def test_allowed_subagents(value: str, meaning: object) -> None:
    assert spec(f"allowed_subagents: {value}").subagents == meaning
    assert spec("description: d").subagents is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("name: reviewer", "reviewer"),
        ("name: ''", "foo"),
        ("name: '   '", "foo"),
        ("name: '  trimmed '", "trimmed"),
        ("description: d", "foo"),
        ("name: My Agent", "My Agent"),
        ("name: 2024", "2024"),
    ],
)
def test_the_name_is_the_key_and_the_file_name_the_fallback(line: str, name: str) -> None:
    parsed = pi(line, file="foo.md")
    assert parsed.spec is not None
    assert parsed.spec.name == name
    assert parsed.spec.path is not None and parsed.spec.path.endswith("/project/.pi/agents/foo.md")


def test_a_colon_in_the_name_is_refused() -> None:
    parsed = pi("name: team:reviewer")
    assert parsed.spec is None
    assert parsed.error is not None
    assert (parsed.error.code, parsed.error.line) == ("bad-name", 2)


def test_display_name_is_only_a_label() -> None:
    found = spec("display_name: The Reviewer", file="reviewer.md")
    assert (found.name, found.display_name) == ("reviewer", "The Reviewer")


@pytest.mark.parametrize(("value", "meaning"), [("5", 5), ("0", 0), ("-1", None), ("many", None), ("2.5", None)])
def test_max_turns(value: str, meaning: int | None) -> None:
    assert spec(f"max_turns: {value}").max_turns == meaning


@pytest.mark.parametrize("value", ['"true"', "yes", "1", "on"])
@pytest.mark.parametrize("key", ["inherit_context", "isolated", "run_in_background"])
def test_switches_are_true_only_for_an_unquoted_true(key: str, value: str) -> None:
    field = {"run_in_background": "background"}.get(key, key)
    parsed = pi(f"{key}: {value}")
    assert getattr(parsed.spec, field) is False
    assert [problem.key for problem in parsed.problems] == [key]
    assert getattr(spec("description: d"), field) is None
    assert getattr(spec(f"{key}: false"), field) is False


def test_lists_and_comma_strings_are_the_same() -> None:
    for key, read in (("tools", "allow"), ("disallowed_tools", "deny"), ("exclude_extensions", "exclude_extensions")):
        text, flow = spec(f"{key}: a, b"), spec(f"{key}: [a, b]")
        block = spec(f"{key}:", "  - a", "  - b")
        assert getattr(text.tools, read) == getattr(flow.tools, read) == getattr(block.tools, read) == ("a", "b")


def test_devkit_shape_in_a_shared_folder() -> None:
    parsed = pi("name: api", "description: d", "readonly: true", "tools: read, grep")
    assert (parsed.dialect, parsed.reading) == ("devkit", "simple")
    with_pi_keys = pi("name: api", "readonly: true", "prompt_mode: append")
    assert with_pi_keys.dialect == "pi"
    assert with_pi_keys.spec is not None
    assert with_pi_keys.spec.readonly is True
    without_name = pi("readonly: true", "tools: read", file="api.md")
    assert without_name.spec is not None
    assert (without_name.dialect, without_name.spec.name) == ("pi", "api")
