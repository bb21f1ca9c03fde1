"""A mistake in a file is reported, and never gives an agent more than its author meant."""

from __future__ import annotations

from typing import Any

import pytest
from agent_file import read_agent
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.parse import parse
from retinue.core.spec import AgentSpec, DialectName, Problem


def claude(*lines: str) -> Any:
    text = "\n".join(["---", "name: x", "description: d", *lines, "---", "Body"])
    return read_agent(text)


def spec(*lines: str) -> AgentSpec:
    found = claude(*lines).spec
    assert found is not None
    return found


def problem(parsed: Any, key: str) -> Problem:
    (found,) = [each for each in parsed.problems if each.key == key]
    return found


@pytest.mark.parametrize(
    "value",
    ["42", "true", "{a: [}", "{Read: maybe}", "{}", "[[Read]]", "[{Read: true}]", "2.5", "false", "[]", '""', "none"],
)
def test_a_tool_list_that_cannot_be_read_allows_nothing(value: str) -> None:
    assert spec(f"tools: {value}").tools.allow == ()


@pytest.mark.parametrize("value", ["42", "true", "{a: [}", "{Read: maybe}", "[[Read]]"])
def test_it_is_reported_as_an_error_with_its_place(value: str) -> None:
    found = problem(claude(f"tools: {value}"), "tools")
    assert (found.code, found.severity, found.line, found.column) == ("bad-value", "error", 4, 1)


def test_the_readable_part_of_an_allow_list_stays() -> None:
    parsed = claude("tools: [Read, [Write], {Edit: true}]")
    assert parsed.tools == ("Read",)
    assert problem(parsed, "tools").severity == "error"


@pytest.mark.parametrize("value", ["5", "true", "{Bash: true}", "[Bash, [Write]]", "[Bash"])
def test_a_deny_list_that_cannot_be_read_denies_everything(value: str) -> None:
    parsed = claude("tools: Read, Bash", f"disallowedTools: {value}")
    assert parsed.spec is not None
    assert (parsed.spec.tools.allow, parsed.spec.tools.deny) == ((), ("*",))
    assert problem(parsed, "disallowedTools").severity == "error"


def test_values_that_would_grant_are_dropped() -> None:
    parsed = claude("permissionMode: yolo", "memory: everything", "maxTurns: -1", "mcpServers: 7")
    assert parsed.spec is not None
    assert (parsed.spec.permission_mode, parsed.spec.memory, parsed.spec.max_turns) == (None, None, None)
    assert parsed.spec.servers == ()
    assert {each.key for each in parsed.problems} == {"permissionMode", "memory", "maxTurns", "mcpServers"}
    assert parsed.fates["permissionMode"].fate == "ignored"
    assert parsed.spec.extra["permissionMode"] == "yolo"


@pytest.mark.parametrize("dialect", ["claude", "retinue", "cursor", "codingcode", "pi", "generic"])
def test_an_unclear_readonly_is_read_only(dialect: DialectName) -> None:
    parsed = parse(b"---\nname: x\ndescription: d\nreadonly: maybe\n---\n", path="x.md", dialect=dialect)
    assert parsed.spec is not None
    assert parsed.spec.readonly is True
    assert problem(parsed, "readonly").severity == "error"


def test_isolation_remote_is_reported_as_unsupported() -> None:
    parsed = claude("isolation: remote")
    assert parsed.spec is not None
    assert parsed.spec.isolation is None
    assert problem(parsed, "isolation").code == "unsupported-value"


@pytest.mark.parametrize(
    "key",
    [
        "allowed_tools",
        "allowed-tools",
        "allowedTools",
        "Tools",
        "TOOLS",
        "tool",
        "toolz",
        "allow_tools",
        "permitted_tools",
        "'allowed tools'",
        "availableTools",
    ],
)
@pytest.mark.parametrize("dialect", ["claude", "pi", "devkit", "codingcode", "retinue", "gemini", "cursor"])
def test_a_misspelt_tool_list_still_limits(dialect: DialectName, key: str) -> None:
    text = f"---\nname: x\ndescription: d\n{key}: Read, Grep\nhooks:\n---\n"
    parsed = parse(text.encode(), path="x.md", dialect=dialect)
    assert parsed.spec is not None
    assert parsed.spec.tools.allow == ("Read", "Grep")
    found = problem(parsed, key.strip("'"))
    assert (found.code, found.severity, found.line) == ("near-miss-key", "warning", 4)
    assert parsed.fates[key.strip("'")].fate == "translated"


@pytest.mark.parametrize(
    "key", ["disallowed_tools", "disallowed-tools", "disalowedTools", "denied_tools", "excludeTools", "blockedTools"]
)
def test_a_misspelt_deny_list_still_denies(key: str) -> None:
    parsed = claude(f"{key}: Bash")
    assert parsed.spec is not None
    assert parsed.spec.tools.deny == ("Bash",)
    assert problem(parsed, key).code == "near-miss-key"


@pytest.mark.parametrize(
    ("line", "field", "value"), [("maxturns: 5", "max_turns", 5), ("max_turns: 5", "max_turns", 5)]
)
def test_a_misspelt_limit_counts(line: str, field: str, value: int) -> None:
    assert getattr(spec(line), field) == value
    assert [each.code for each in claude(line).problems] == ["near-miss-key"]


def test_a_misspelt_key_never_grants() -> None:
    parsed = claude("permission_mode: bypassPermissions", "mcp_servers: [a]", "Hooks: {Stop: [{command: x}]}")
    assert parsed.spec is not None
    assert (parsed.spec.permission_mode, parsed.spec.servers, parsed.spec.hooks) == (None, None, ())
    assert [each.code for each in parsed.problems] == ["near-miss-key", "near-miss-key", "bad-value"]


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "kimi"])
@pytest.mark.parametrize("key", ["hook", "Hooks", "hoks", "hooks"])
def test_guards_under_a_key_that_the_dialect_lacks_refuse_the_launch(dialect: DialectName, key: str) -> None:
    text = f"---\nname: x\ndescription: d\n{key}: {{PreToolUse: [{{command: check}}]}}\n---\nWork.\n"
    parsed = parse(text.encode(), path="x.md", dialect=dialect)
    assert parsed.spec is not None
    guarded = key == "hooks" and parsed.spec.hooks != ()
    assert guarded or (parsed.spec.refusal is not None and parsed.spec.refusal.key == key)
    assert spec("permission_mode: plan").permission_mode == "plan"


def test_a_typo_in_a_harmless_key_is_reported_and_not_guessed() -> None:
    parsed = claude("initialPromt: go", "memori: user")
    assert parsed.spec is not None
    assert parsed.spec.initial_prompt is None
    assert "initialPrompt" in problem(parsed, "initialPromt").remedy


def test_keys_that_limit_count_in_every_dialect_without_a_warning() -> None:
    parsed = claude("readonly: true", "enabled: false")
    assert parsed.spec is not None
    assert (parsed.spec.readonly, parsed.spec.enabled, parsed.problems) == (True, False, ())
    assert parsed.fates["readonly"].fate == "translated"


def test_said_twice_means_what_both_allow() -> None:
    parsed = claude("tools: Read, Bash, Grep", "allowed_tools: read, grep")
    assert parsed.spec is not None
    assert parsed.spec.tools.allow == ("Read", "Grep")
    assert spec("tools: Read", "tools: Bash").tools.allow == ()
    assert spec("tools: '*'", "allowed_tools: Read").tools.allow == ("Read",)
    assert spec("disallowedTools: Bash", "disallowed_tools: Write").tools.deny == ("Bash", "Write")
    assert spec("readonly: true", "read_only: false").readonly is True
    assert spec("enabled: false", "disabled: false").enabled is False


def test_the_dialects_own_spelling_wins_over_a_slip() -> None:
    for lines in (("Model: opus", "model: haiku"), ("model: haiku", "Model: opus")):
        parsed = claude(*lines)
        assert parsed.model == "haiku"
        assert parsed.fates["Model"].fate == "ignored"


def test_brackets_and_commas_never_split_a_specifier() -> None:
    parsed = claude("tools: Task(worker, researcher), Bash(git log:*, git diff:*), Read")
    assert parsed.tools == ("Task(worker, researcher)", "Bash(git log:*, git diff:*)", "Read")
    assert claude("tools: Bash(git, Read, Write").tools == ("Bash(git", "Read", "Write")


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name not in ("kimi", "devkit")])
@pytest.mark.parametrize("value", ["", " ~", " null"])
def test_a_tool_list_without_a_value_is_no_tool_at_all(dialect: DialectName, value: str) -> None:
    text = f"---\nname: x\ndescription: d\ntools:{value}\nmaxTurns: 3\n---\nBody"
    parsed = parse(text.encode(), path="x.md", dialect=dialect)
    assert parsed.spec is not None
    assert parsed.spec.tools.allow == ()
    assert parsed.spec.refusal is None


VALUES = st.recursive(
    st.one_of(
        st.sampled_from(["Read", "*", "none", "true", "no", "5", "-1", "~", '"x"', "a, b", "all", "plan", "{", "["]),
        st.text("abc:#-[]{},'\"*&! \t", max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(inner, max_size=2).map(lambda items: "{" + ", ".join(f"k{n}: {v}" for n, v in enumerate(items)) + "}"),
    ),
    max_leaves=4,
)


@settings(max_examples=400)
@given(VALUES)
def test_tools_followed_by_anything_means_every_tool_only_if_it_says_so(value: str) -> None:
    parsed = claude(f"tools: {value}")
    if parsed.spec is None or parsed.spec.tools.allow is not None or parsed.spec.tools.deny:
        return
    assert parsed.tools is None or any(name.lower() in ("*", "all") for name in parsed.tools)
    if parsed.tools is None:
        assert value.split(" #")[0].strip() in ("", "~") or value.lstrip().startswith(("#", "!", "&"))


LINES = st.lists(
    st.builds(
        "{}:{}{}".format,
        st.sampled_from(
            sorted({key for dialect in DIALECTS.values() for key in dialect.exact} | {"x", "?", "- a", "<<"})
        ),
        st.sampled_from([" ", "", "\n  - ", "\n  ", " |\n  "]),
        VALUES,
    ),
    max_size=6,
)
FILES = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=100).map(lambda data: b"---\n" + data + b"\n---\nBody"),
    st.text(max_size=100).map(lambda text: f"---\n{text}\n---\n".encode("utf-8", "surrogatepass")),
    LINES.map(lambda lines: ("---\n" + "\n".join(lines) + "\n---\nBody").encode()),
)


@settings(max_examples=600)
@given(FILES, st.sampled_from(sorted(DIALECTS)), st.sampled_from(["project", "plugin"]))
def test_any_bytes_give_a_spec_or_a_reason(data: bytes, dialect: DialectName, source: str) -> None:
    for chosen in (dialect, None):
        parsed = parse(data, path="some/agents/x.md", dialect=chosen, source=source)  # type: ignore[arg-type]
        assert (parsed.spec is None) == (parsed.error is not None)
        assert parsed.spec is None or parsed.spec.name
        assert set(parsed.places) <= set(parsed.fates)
        assert all(each.message for each in parsed.problems)


@pytest.mark.parametrize("dialect", ["claude", "pi", "codingcode", "opencode", "retinue"])
@pytest.mark.parametrize("line", [" tools: Read", "tools = Read", "tools\uff1a Read", "  readonly: true"])
def test_a_limit_that_a_broken_frontmatter_swallows_refuses_the_launch(dialect: DialectName, line: str) -> None:
    text = f"---\nname: a\ndescription: Use: this\n{line}\n---\nWork.\n"
    parsed = parse(text.encode(), path="a.md", dialect=dialect)
    assert [(each.line, each.refuses) for each in parsed.problems if each.severity == "error"] == [(4, True)]


def test_a_text_and_a_nested_value_of_a_broken_frontmatter_are_no_lost_limits() -> None:
    text = "---\nname: a\nwho: 'it's'\ndescription: |\n  tools: Read\nbudget:\n  turns: 2\n---\nWork.\n"
    parsed = parse(text.encode(), path="a.md", dialect="retinue")
    assert parsed.reading == "lines" and not any(each.refuses for each in parsed.problems)
