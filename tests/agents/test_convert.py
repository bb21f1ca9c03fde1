"""Converting between dialects: own names, honest losses, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_file import FOLDERS, read_agent
from agent_specs import WRITABLE, calm, specs
from hypothesis import given
from hypothesis import strategies as st
from tests.program_main import run_main

from retinue.agents.convert import Conversion, adds_rights, convert, differences, value_of
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.frontmatter import Parsed
from retinue.agents.parse import parse, parse_file
from retinue.agents.write import write_agent
from retinue.core.spec import AgentSpec, DialectName
from retinue.core.tool_names import canonical
from retinue.errors import UsageError

FILES = {"copilot": "agent.agent.md"}
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"


def convert_file(folder: Path, text: str, dialect: DialectName, to: str) -> SimpleNamespace:
    """Return what `retinue agents convert` says of a file of that dialect: its `text`, `file`, `name` and `losses`."""
    path = folder / FOLDERS[dialect] / FILES.get(dialect, "agent.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    done = run_main("agents", "convert", str(path), "--to", to, "--json")
    assert done.returncode == 0, done.stderr
    (made,) = json.loads(done.stdout)["converted"]
    made["losses"] = [SimpleNamespace(**loss) for loss in made["losses"]]
    return SimpleNamespace(**made)


def read_back(made: SimpleNamespace) -> AgentSpec:
    spec: AgentSpec = read_agent(made.text, f"{FOLDERS[made.to]}/{made.file}").spec
    return spec


def read(text: str, dialect: DialectName, name: str = "agent.md") -> Parsed:
    return parse(text.encode(), path=f"x/{name}", dialect=dialect)


def back(made: Conversion) -> Parsed:
    parsed = parse(made.text.encode(), path=f"x/{made.file_name}", dialect=made.dialect)
    assert parsed.spec is not None
    return parsed


CLAUDE = """---
name: reviewer
description: "Reviews: code"
tools: Read, Grep, Glob, Bash(git diff:*), mcp__github__get_issue
disallowedTools: Write
model: sonnet
maxTurns: 9
---

Review the change.
"""


def test_tools_get_the_names_of_the_target_and_models_keep_theirs(tmp_path: Path) -> None:
    made = convert_file(tmp_path, CLAUDE, "claude", "pi")
    assert "tools: read, grep, find, bash(git diff:*), mcp__github__get_issue\n" in made.text
    assert "disallowed_tools: write\n" in made.text
    assert "max_turns: 9\n" in made.text
    assert "model: sonnet\n" in made.text
    assert made.losses == []
    assert made.file == "reviewer.md"


@pytest.mark.parametrize("to", [name for name in WRITABLE if name not in ("claude", "generic")])
def test_there_and_back_is_the_same_agent(to: DialectName) -> None:
    parsed = read(CLAUDE, "claude")
    made = convert(parsed, to)
    assert {loss.kind for loss in made.losses} <= {"ignored-there"}
    again = convert(back(made), "claude")
    assert parsed.spec is not None
    assert differences(parsed.spec, back(again).spec or AgentSpec(name="")) == ()


def test_names_that_would_not_come_back_are_said(tmp_path: Path) -> None:
    text = CLAUDE.replace("Read, Grep", "NotebookEdit, search, Grep")
    losses = convert_file(tmp_path, text, "claude", "pi").losses
    assert [(loss.kind, loss.what) for loss in losses] == [("renamed", "NotebookEdit"), ("renamed", "search")]
    assert "grep, find, ls" in losses[1].why


@pytest.mark.parametrize("to", ["pi", "codingcode", "opencode", "retinue"])
def test_a_tool_that_nobody_knows_is_said_when_it_is_carried_over(tmp_path: Path, to: DialectName) -> None:
    head = "---\nname: a\ndescription: d\ntools: Read, Blorp, mcp__x__y\ndisallowedTools: Zapp\n---\nWork.\n"
    made = convert_file(tmp_path, head, "claude", to)
    assert [(loss.field, loss.what) for loss in made.losses if loss.kind == "unknown"] == [
        ("tools.allow", "Blorp"),
        ("tools.deny", "Zapp"),
    ]
    assert "Blorp" in made.text, "whoever installs such a tool has it"


def test_what_cannot_be_expressed_is_a_loss_with_its_reason(tmp_path: Path) -> None:
    text = CLAUDE.replace("maxTurns: 9", "permissionMode: plan\nmemory: user\ninitialPrompt: Hi")
    losses = {loss.field: loss for loss in convert_file(tmp_path, text, "claude", "gemini").losses}
    assert set(losses) == {"permission_mode", "memory", "initial_prompt", "tools.deny"}
    assert losses["memory"].why == "Gemini CLI has no key for it"
    assert losses["tools.deny"].kind == "ignored-there"


def test_limits_the_target_does_not_know_are_written_for_retinue_and_said(tmp_path: Path) -> None:
    made = convert_file(tmp_path, CLAUDE, "claude", "cursor")
    assert read_back(made).max_turns == 9
    assert {loss.field for loss in made.losses} == {"tools.deny", "max_turns"}
    assert "max_turns: 9" in made.text


def test_several_models_become_one_where_only_one_is_read(tmp_path: Path) -> None:
    text = "---\nname: a\ndescription: d\nmodel: [x/y, z/w]\n---\nGo.\n"
    made = convert_file(tmp_path, text, "copilot", "claude")
    assert "model: x/y\n" in made.text
    assert [(loss.field, loss.what) for loss in made.losses] == [("model.fallbacks", "z/w")]


def test_a_name_the_target_refuses_is_changed_and_said(tmp_path: Path) -> None:
    made = convert_file(tmp_path, "---\nname: 'core: x'\ndescription: d\n---\nGo.\n", "copilot", "claude")
    assert made.name == "core- x"
    assert made.losses[0].kind == "renamed"


def test_unknown_keys_are_kept_in_order(tmp_path: Path) -> None:
    text = "---\nname: a\ndescription: d\nvibe: calm\ntags: [x, {y: 'no'}]\nversion: 1.10\n---\nGo.\n"
    spec = read_back(convert_file(tmp_path, text, "claude", "opencode"))
    assert list(spec.extra.items()) == [("vibe", "calm"), ("tags", ["x", {"y": "no"}]), ("version", "1.10")]


@pytest.mark.parametrize(
    ("line", "to"),
    [
        ("permission_mode: bypassPermissions", "retinue"),
        ("mcp_servers: [evil]", "gemini"),
        ("allow_subagents: all", "pi"),
        ("output: {}", "pi"),
    ],
)
def test_a_key_without_effect_never_gains_one_that_adds_rights(line: str, to: DialectName) -> None:
    parsed = read(f"---\nname: a\ndescription: d\n{line}\n---\nGo.\n", "cursor")
    made = convert(parsed, to)
    after = back(made).spec
    assert parsed.spec is not None
    assert after is not None
    assert not adds_rights(parsed.spec, after)
    key = line.partition(":")[0]
    assert key in after.extra or any(loss.field == f"extra.{key}" for loss in made.losses)


def test_a_file_that_is_no_agent_cannot_be_converted(tmp_path: Path) -> None:
    path = tmp_path / ".claude/agents/a.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\ndescription: d\n---\n")
    done = run_main("agents", "convert", str(path), "--to", "pi")
    assert done.returncode == 2
    assert "no name" in done.stderr


def test_nothing_is_written_for_a_dialect_that_has_its_prompt_in_a_second_file() -> None:
    with pytest.raises(UsageError, match="prompt in a file"):
        convert(read(CLAUDE, "claude"), "kimi")


def test_the_name_tables_are_names_of_the_tools_they_claim() -> None:
    for dialect, table in DIALECTS.items():
        for tool, name in table.tool_names.items():
            if tool == "apply_patch":  # no agent file lists it: whoever may edit and write has it
                assert canonical(name) == ("edit",)
                continue
            assert canonical(name) in ((tool,), ("Agent",), ("dispatch_agent",)), (dialect, tool, name)


@given(data=st.data())
@calm(40)
def test_whatever_is_not_named_as_lost_comes_back(data: Any) -> None:
    origin, to = data.draw(st.sampled_from(WRITABLE)), data.draw(st.sampled_from(WRITABLE))
    written = write_agent(data.draw(specs), origin)
    parsed = parse(written.encode(), path="x/agent.md", dialect=origin)
    assert parsed.spec is not None
    made = convert(parsed, to)
    result = back(made).spec
    assert result is not None
    named = {loss.field.partition(".")[0] if loss.field.startswith("extra") else loss.field for loss in made.losses}
    for field in differences(parsed.spec, result):
        if field in ("tools.allow", "tools.deny"):
            old, new = (_tools(value_of(spec, field)) for spec in (parsed.spec, result))
            assert old == new or field in named
        else:
            assert field in named, (field, value_of(parsed.spec, field), value_of(result, field), made.losses)


def _tools(names: object) -> object:
    """A tool list by what it means."""
    return {each for name in names for each in canonical(name) or (name,)} if isinstance(names, tuple) else names


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not part of the repository")
def test_every_lossless_conversion_of_the_corpus_comes_back_the_same() -> None:
    lossless = 0
    for line in (CORPUS / "index.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["dialect"] in ("skills", "kimi"):
            continue
        parsed = parse_file(CORPUS / record["file"], dialect=record["dialect"])
        if parsed.spec is None:
            continue
        for to in ("retinue", "claude", "pi", "opencode"):
            made = convert(parsed, to)
            if not made.losses:
                again = back(convert(back(made), parsed.dialect)).spec
                assert again is not None
                assert differences(parsed.spec, again) == (), record["file"]
                lossless += 1
    assert lossless > 1500


def test_a_kimi_file_says_that_its_prompt_lies_elsewhere() -> None:
    text = "version: 1\nagent:\n  name: a\n  description: d\n  system_prompt_path: ./system.md\n"
    losses = convert(parse(text.encode(), path="agent.yaml"), "claude").losses
    assert losses[0].field == "prompt"
    assert losses[0].what == "./system.md"


def test_hooks_and_servers_are_named_in_losses(tmp_path: Path) -> None:
    text = CLAUDE.replace("maxTurns: 9", "hooks: {Stop: [{command: x}]}\nmcpServers: [a, {b: {url: u}}]")
    losses = {loss.field: loss.what for loss in convert_file(tmp_path, text, "claude", "pi").losses}
    assert losses == {"hooks": "Stop hook", "servers": "a, b"}


def test_the_tool_that_starts_agents_comes_back_as_each_dialect_calls_it(tmp_path: Path) -> None:
    text = "---\nname: a\ndescription: d\ntools: Read, Task\n---\nWork.\n"
    there = convert_file(tmp_path, text, "claude", "codingcode")
    assert "dispatch_agent" in there.text
    back = convert_file(tmp_path, there.text, "codingcode", "claude")
    assert back.text.splitlines()[3] == "tools: Read, Agent"


def test_an_opencode_permission_map_survives_every_conversion(tmp_path: Path) -> None:
    text = '---\ndescription: d\npermission: {bash: {"*": deny, "git diff*": allow}, webfetch: ask}\n---\nWork.\n'
    first = read_agent(text, ".opencode/agents/agent.md").spec
    for dialect in ("claude", "pi", "codingcode", "retinue", "gemini", "cursor"):
        there = read_back(convert_file(tmp_path, text, "opencode", dialect))
        assert there.tools.rules == first.tools.rules
