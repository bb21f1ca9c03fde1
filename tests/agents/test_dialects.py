"""The other dialects: what each key means there, and the facts about each one's files."""

from __future__ import annotations

from typing import Any

import pytest
from agent_file import FOLDERS, read_agent

from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.parse import parse
from retinue.core.spec import AgentSpec, DialectName, PermissionRule


def read(dialect: DialectName, *lines: str, body: str = "Prompt.", file: str = "x.md") -> Any:
    if dialect == "copilot":
        file = file.replace(".md", ".agent.md")
    parsed = read_agent("\n".join(["---", *lines, "---", body]), f"{FOLDERS[dialect]}/{file}")
    assert parsed.dialect == dialect
    return parsed


def spec(dialect: DialectName, *lines: str, **options: Any) -> AgentSpec:
    found = read(dialect, "name: x", "description: d", *lines, **options)
    assert found.spec is not None, found.error
    return found.spec


def code(parsed: Any) -> str | None:
    return parsed.error.code if parsed.error is not None else None


# Claude Code


def test_claude_every_field() -> None:
    found = spec(
        "claude",
        "tools: Read, Bash(npm run test:*), Agent(worker, researcher), mcp__github__*",
        "disallowedTools: [Write, Edit]",
        "model: opus",
        "effort: high",
        "maxTurns: 10",
        "permissionMode: plan",
        "background: true",
        "initialPrompt: /search TODO",
        "isolation: worktree",
        "memory: user",
        "skills: code-review,security-review",
        "color: blue",
        "requiredMcpServers: [db]",
    )
    assert found.tools.allow == ("Read", "Bash(npm run test:*)", "Agent(worker, researcher)", "mcp__github__*")
    assert found.tools.deny == ("Write", "Edit")
    assert (found.model.name, found.model.thinking, found.max_turns) == ("opus", "high", 10)
    assert (found.permission_mode, found.background, found.initial_prompt) == ("plan", True, "/search TODO")
    assert (found.isolation, found.memory, found.color) == ("worktree", "user", "blue")
    assert (found.skills, found.required_servers) == (("code-review", "security-review"), ("db",))


def test_claude_servers_by_name_and_inline() -> None:
    found = spec("claude", "mcpServers:", "  - slack", "  - db:", "      command: npx", "      args: [mcp-db]")
    assert found.servers is not None
    assert [(each.name, each.config) for each in found.servers] == [
        ("slack", None),
        ("db", {"command": "npx", "args": ["mcp-db"]}),
    ]


def test_claude_hooks_nested_and_flat_with_their_timeouts() -> None:
    nested = spec(
        "claude",
        "hooks:",
        "  PreToolUse:",
        "    - matcher: Bash",
        "      hooks:",
        "        - {type: command, command: check.sh, timeout: 30}",
        "  Stop: [{hooks: [{type: command, command: done.sh}]}]",
    )
    assert [(each.event, each.matcher, each.timeout_seconds) for each in nested.hooks] == [
        ("PreToolUse", "Bash", 30),
        ("Stop", None, None),
    ]
    flat = spec("claude", "hooks:", "  PreToolUse:", "    - command: audit.sh", "      timeout: 5000")
    assert [(each.event, each.handler, each.timeout_seconds) for each in flat.hooks] == [
        ("PreToolUse", {"command": "audit.sh"}, 5)
    ]


@pytest.mark.parametrize("value", ["[]", "{}", ""])
def test_claude_empty_hooks_are_no_hooks(value: str) -> None:
    assert spec("claude", f"hooks: {value}").hooks == ()


@pytest.mark.parametrize(
    "value", ["true", "check.sh", "{PreToolUse: [5]}", "{PreToolUse: [{matcher: 3, command: x}]}", "[x]"]
)
def test_claude_hooks_that_cannot_be_read_refuse_the_launch(value: str) -> None:
    """A guard that is missing guards nothing."""
    parsed = read("claude", "name: x", "description: d", f"hooks: {value}")
    assert parsed.spec is not None
    assert parsed.spec.refusal is not None
    assert (parsed.spec.refusal.key, parsed.spec.refusal.line) == ("hooks", 4)


@pytest.mark.parametrize("word", ["yes", "on", "1", "true", "True"])
def test_claude_booleans_take_many_words(word: str) -> None:
    assert spec("claude", f"background: {word}").background is True
    assert spec("claude", "background: no").background is False


@pytest.mark.parametrize(("value", "model"), [("inherit", None), ("Inherit", "Inherit"), ("sonnet", "sonnet")])
def test_claude_only_lower_case_inherit_is_the_keyword(value: str, model: str | None) -> None:
    assert spec("claude", f"model: {value}").model.name == model


def test_claude_files_that_are_skipped() -> None:
    assert code(read("claude", "description: d")) == "missing-name"
    assert code(read("claude", "name: x")) == "missing-description"
    assert code(read("claude", "name: -x", "description: d")) == "bad-name"
    assert code(read("claude", "name: a:b", "description: d")) == "bad-name"
    documentation = read_agent("# Guide\n\nHow to use these.\n", ".claude/agents/README.md")
    assert documentation.error is not None
    assert (documentation.error.code, documentation.error.severity) == ("no-frontmatter", "info")
    assert documentation.prompt == "# Guide\n\nHow to use these."


def test_what_was_read_is_there_even_without_a_spec() -> None:
    parsed = read("claude", "description: d", "tools: Read", "model: opus")
    assert parsed.spec is None
    assert (parsed.description, parsed.tools, parsed.model, parsed.prompt) == ("d", ("Read",), "opus", "Prompt.")


def test_claude_plugin_files_bring_no_hooks_servers_or_modes() -> None:
    lines = ("hooks: {Stop: [{command: x}]}", "mcpServers: [a]", "permissionMode: bypassPermissions", "tools: Read")
    text = "\n".join(["---", *lines, "---", "Prompt."])
    parsed = parse(text.encode(), path="plugin/agents/helper.md", dialect="claude", source="plugin")
    assert parsed.spec is not None
    assert parsed.spec.name == "helper"
    assert (parsed.spec.hooks, parsed.spec.servers, parsed.spec.permission_mode) == ((), None, None)
    for key in ("hooks", "mcpServers", "permissionMode"):
        assert (parsed.fates[key].fate, parsed.fates[key].why) == ("ignored", "not allowed in a plugin")
    assert {problem.code for problem in parsed.problems} == {"not-in-plugin"}


# devkit-pi


def test_devkit_reads_simple_lines() -> None:
    parsed = read(
        "devkit", 'name: "api"', "description: 'a: b # c'", "readonly: true", "tools: read, grep", "model: x/y:high"
    )
    assert parsed.reading == "simple"
    assert parsed.spec is not None
    assert (parsed.name, parsed.description, parsed.tools, parsed.model) == (
        "api",
        "a: b # c",
        ("read", "grep"),
        "x/y:high",
    )
    assert parsed.spec.readonly is True


@pytest.mark.parametrize(
    ("value", "meaning"),
    [("true", True), ("1", True), ('"true"', True), ("false", False), ("yes", False), ("True", False)],
)
def test_devkit_only_true_and_1_are_read_only(value: str, meaning: bool) -> None:
    parsed = read("devkit", "name: x", f"readonly: {value}")
    assert parsed.spec is not None
    assert parsed.spec.readonly is meaning
    assert bool(parsed.problems) is (value in ("yes", "True"))


def test_devkit_a_list_of_tools_is_understood_too() -> None:
    assert read("devkit", "name: x", "tools:", "  - read", "  - grep").tools == ("read", "grep")
    assert read("devkit", "name: x", "tools: [read, grep]").tools == ("read", "grep")


def test_devkit_needs_a_name_and_nothing_else() -> None:
    assert code(read("devkit", "description: d")) == "missing-name"
    found = read("devkit", "name: x").spec
    assert found is not None
    assert found.description == "x"


# CodingCode


def test_codingcode_every_field() -> None:
    found = spec(
        "codingcode",
        'tools: ["read_file", "search_code"]',
        "mcpServers: [postgres, redis]",
        "readonly: true",
        "maxSteps: 50",
        "model: gpt-4o@openai",
        "permissionMode: bypass",
        "disabled: true",
        "hooks: [{event: tool.before, command: check}]",
    )
    assert found.tools.allow == ("read_file", "search_code")
    assert [each.name for each in found.servers or ()] == ["postgres", "redis"]
    assert (found.readonly, found.max_turns, found.enabled) == (True, 50, False)
    assert (found.model.name, found.permission_mode) == ("gpt-4o@openai", "bypassPermissions")
    assert [each.event for each in found.hooks] == ["tool.before"]


def test_codingcode_a_comma_string_is_the_list_and_never_all_tools() -> None:
    assert spec("codingcode", "tools: read_file, bash").tools.allow == ("read_file", "bash")


def test_codingcode_readonly_false_as_text_is_false() -> None:
    assert spec("codingcode", 'readonly: "false"').readonly is False


def test_codingcode_needs_name_and_description() -> None:
    assert code(read("codingcode", "name: x")) == "missing-description"
    assert code(read("codingcode", "description: d")) == "missing-name"


def test_codingcode_prompt_may_be_a_key() -> None:
    assert spec("codingcode", "systemPrompt: From the key", body="").prompt == "From the key"
    assert spec("codingcode", "systemPrompt: From the key").prompt == "Prompt."


# Retinue


def test_retinue_accepts_every_spelling() -> None:
    ours = spec(
        "retinue",
        "max_turns: 5",
        "disallowed_tools: bash",
        "background: true",
        "permission_mode: plan",
        "mcp_servers: [a]",
        "output_schema: {type: object}",
        "allowed_subagents: [x]",
        "timeout_seconds: 90",
        "fallback_models: a, b",
    )
    theirs = spec(
        "retinue",
        "maxTurns: 5",
        "disallowedTools: [bash]",
        "run_in_background: yes",
        "permissionMode: plan",
        "mcpServers: a",
        'outputSchema: \'{"type": "object"}\'',
        "allowed_subagents: x",
        "timeout: 90",
        "fallbackModels: [a, b]",
    )
    assert ours.hash == theirs.hash
    assert (ours.max_turns, ours.timeout_seconds, ours.model.fallbacks) == (5, 90, ("a", "b"))


def test_retinue_takes_the_file_name() -> None:
    parsed = read_agent("Just a prompt.\n", ".retinue/agents/helper.md")
    assert parsed.spec is not None
    assert (parsed.spec.name, parsed.dialect) == ("helper", "retinue")


# opencode, Gemini CLI, Copilot, Cursor, Kimi


def test_opencode_tool_map() -> None:
    some = read("opencode", "tools:", "  read: true", "  grep: true", "  bash: false")
    assert (some.tools, some.disallowed_tools) == (("read", "grep"), ("bash",))
    assert some.spec is not None
    assert (some.spec.tools.allow, some.spec.tools.deny) == (("read", "grep"), ("bash",))
    refusals = read("opencode", "tools: {write: false, edit: false}").spec
    assert refusals is not None
    assert (refusals.tools.allow, refusals.tools.deny) == (None, ("write", "edit"))
    only = read("opencode", 'tools: {"*": false, github-triage: true}').spec
    assert only is not None
    assert (only.tools.allow, only.tools.deny) == (("github-triage",), ())
    nothing = read("opencode", 'tools: {"*": false}').spec
    assert nothing is not None
    assert nothing.tools.allow == ()


def test_a_value_that_means_the_default_has_the_fate_of_its_key() -> None:
    assert read("opencode", "mode: subagent").fates["mode"].fate == "translated"
    assert read("opencode", "mode:").fates["mode"].why == "no value"


def test_what_isolated_leaves_out_is_not_called_honoured() -> None:
    fates = read("pi", "isolated: true", "skills: a", "extensions: [b]").fates
    assert (fates["skills"].fate, fates["extensions"].fate, fates["isolated"].fate) == (
        "ignored",
        "ignored",
        "honoured",
    )
    assert read("pi", "isolated: false", "skills: a").fates["skills"].fate == "honoured"


def test_a_session_folder_beside_a_session_that_is_not_kept_is_not_called_honoured() -> None:
    assert read("pi", "persist_session: false", "session_dir: out").fates["session_dir"].fate == "ignored"
    assert read("pi", "persist_session: true", "session_dir: out").fates["session_dir"].fate != "ignored"


def test_opencode_permission_map() -> None:
    found = spec("opencode", "permission:", "  edit: deny", "  bash: {'*': ask, 'rm *': deny}", "  webfetch: allow")
    assert found.tools.allow is None
    assert found.tools.deny == ("edit", "write", "patch")
    assert found.tools.rules == (
        PermissionRule("bash", "*", "ask"),
        PermissionRule("bash", "rm *", "deny"),
        PermissionRule("webfetch", "*", "allow"),
    )
    closed = spec("opencode", "permission: {'*': deny, read: allow, bash: {'*': deny, 'git status': allow}}")
    assert closed.tools.allow == ("read", "bash")
    assert closed.tools.rules == (PermissionRule("bash", "*", "deny"), PermissionRule("bash", "git status", "allow"))
    assert spec("opencode", "permission: deny").tools.allow == ()


def test_opencode_is_named_after_its_path() -> None:
    parsed = read_agent("---\ndescription: d\n---\n", ".opencode/agent/core/reviewer.md")
    assert parsed.spec is not None
    assert (parsed.name, parsed.spec.name) == (None, "core/reviewer")


def test_gemini_fields() -> None:
    found = spec("gemini", "kind: local", "tools: [read_file]", "max_turns: 20", "timeout_mins: 5", "temperature: 0.2")
    assert (found.max_turns, found.timeout_seconds, found.model.temperature) == (20, 300, 0.2)


def test_copilot_fields_and_name() -> None:
    text = b"---\nmodel: [GPT-5, Claude Sonnet 4]\ntools: [search, edit/editFiles, 'github/*']\n---\n"
    parsed = read_agent(text, ".github/agents/Plan-Writer.agent.md")
    assert parsed.model == ("GPT-5", "Claude Sonnet 4")
    assert parsed.spec is not None
    assert (parsed.spec.name, parsed.spec.model.name, parsed.spec.model.fallbacks) == (
        "Plan-Writer",
        "GPT-5",
        ("Claude Sonnet 4",),
    )
    assert parsed.tools == ("search", "edit/editFiles", "github/*")


def test_cursor_fields() -> None:
    found = spec("cursor", "readonly: true", "is_background: true", "model: fast")
    assert (found.readonly, found.background, found.model.name) == (True, True, "fast")


def test_kimi_is_a_whole_file_of_yaml() -> None:
    text = (
        b"---\nversion: 1\nagent:\n  name: ''\n  when_to_use: Plans\n  extend: ./agent.yaml\n"
        b"  allowed_tools: [read]\n  exclude_tools: [bash]\n  system_prompt_args: {ROLE_ADDITIONAL: Plan it}\n"
    )
    parsed = parse(text, path="agents/plan.yaml")
    assert (parsed.dialect, parsed.name, parsed.description, parsed.tools) == ("kimi", "", "Plans", None)
    assert parsed.spec is not None
    assert (parsed.spec.name, parsed.spec.prompt) == ("plan", "Plan it")
    assert (parsed.spec.tools.allow, parsed.spec.tools.deny) == (("read",), ("bash",))
    flat = parse(b"name: coder\ndescription: d\ntools:\n  - Bash\n", path="coder.yml")
    assert (flat.name, flat.tools) == ("coder", ("Bash",))


# All of them


@pytest.mark.parametrize("name", DIALECTS)
def test_every_table_can_be_printed_and_names_real_fields(name: DialectName) -> None:
    dialect = DIALECTS[name]
    fields = set(AgentSpec.__struct_fields__)
    assert dialect.title
    assert dialect.folders
    for row in dialect.fields:
        assert row.type
        assert row.bad
        assert row.to is None or row.to.partition(".")[0] in fields
        assert row.to is not None or row.note
    spellings = [spelling for row in dialect.fields for spelling in row.spellings]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("name", DIALECTS)
def test_every_key_has_a_fate_and_unknown_ones_are_kept(name: DialectName) -> None:
    text = b"name: x\ndescription: d\nvibe: calm\nemoji: x\nversion: 1.10\n"
    data = text if name == "kimi" else b"---\n" + text + b"---\n"
    parsed = parse(data, path="x.yaml" if name == "kimi" else "x.md", dialect=name)
    assert parsed.spec is not None
    assert list(parsed.fates) == ["name", "description", "vibe", "emoji", "version"]
    assert (parsed.fates["vibe"].fate, parsed.fates["vibe"].why) == ("ignored", "unknown key")
    assert parsed.spec.extra == {"vibe": "calm", "emoji": "x", "version": "1.10"}


def test_the_hash_is_of_the_content_and_not_of_the_place() -> None:
    text = b"---\nname: x\ndescription: d\ntools: Read\n---\nBody\n"
    here = read_agent(text, ".claude/agents/a.md").spec
    there = read_agent(text.replace(b"tools: Read", b"tools: [Read]  # same"), ".claude/agents/b/c.md").spec
    other = read_agent(text.replace(b"Body", b"body"), ".claude/agents/a.md").spec
    assert here is not None
    assert there is not None
    assert other is not None
    assert len(here.hash) == 64
    assert here.hash == there.hash != other.hash
