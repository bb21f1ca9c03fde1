"""Every finding: its code, its place, its severity, and whether it can be repaired."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_project import Project
from agent_specs import calm
from hypothesis import given
from hypothesis import strategies as st

import retinue.agents
from retinue.agents.lint.checks import is_known, suggest
from retinue.agents.lint.runner import LintReport, lint_paths, lint_subject
from retinue.agents.lint.subject import CODES, Finding, LintSubject
from retinue.agents.parse import parse, parse_skill
from retinue.errors import UsageError
from retinue.frontends.cli.agents_check import github_report, text_report
from retinue.frontends.cli.main import run

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
BODY = "---\nRead the change and say what is wrong with it.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def agent(*lines: str, name: str = "a", description: str = "When to use it") -> str:
    return "\n".join(["---", f"name: {name}", f"description: {description}", *lines]) + "\n" + BODY


CASES = [
    # keys
    (".claude", agent("allowed_tools: Read"), "near-miss-key", 4, 1, "warning", True),
    (".claude", agent("allowed-tools: Read"), "near-miss-key", 4, 1, "warning", True),
    (".claude", agent("maxturns: 5"), "near-miss-key", 4, 1, "warning", True),
    (".claude", agent("disallowed-tools: Bash"), "near-miss-key", 4, 1, "warning", True),
    (".claude", agent("permision_mode: plan"), "near-miss-key", 4, 1, "warning", True),
    (".claude", agent("permision_mode: bypassPermissions"), "near-miss-key", 4, 1, "warning", False),
    (".claude", agent("mcpservers: [x]"), "near-miss-key", 4, 1, "warning", False),
    (".claude", agent("colour: red"), "near-miss-key", 4, 1, "warning", True),
    (".claude", agent("modle: opus"), "near-miss-key", 4, 1, "warning", True),
    (".pi", agent("max_turn: 5"), "near-miss-key", 4, 1, "warning", True),
    (".pi", agent("disallowedTools: bash"), "near-miss-key", 4, 1, "warning", True),
    (".claude", agent("thinking: high"), "foreign-key", 4, 1, "warning", True),
    (".claude", agent("prompt_mode: append"), "foreign-key", 4, 1, "info", False),
    (".cursor", agent("max_turns: 5"), "honoured-elsewhere", 4, 1, "info", False),
    (".claude", agent("vibe: calm"), "unknown-key", 4, 1, "info", False),
    (".claude", agent("criticalSystemReminder_EXPERIMENTAL: x"), "unused-key", 4, 1, "info", False),
    (".claude", agent("observer: a, b"), "unused-key", 4, 1, "info", False),
    (".opencode", agent("top_p: 0.5"), "unused-key", 4, 1, "info", False),
    (".claude", agent("mode: subagent"), "foreign-key", 4, 1, "info", False),
    (".claude", agent("color: red", "color: red"), "duplicate-key", 5, 1, "warning", True),
    (".claude", agent("tools: Read", "tools: Write"), "duplicate-key", 5, 1, "warning", False),
    # frontmatter
    (".claude", agent(description="Use: this"), "frontmatter-recovered", 3, 17, "warning", True),
    (
        ".claude",
        agent(description="one\n\n<example>\nUser: hi\n</example>"),
        "frontmatter-recovered",
        None,
        None,
        "warning",
        True,
    ),
    (".claude", "---\nname: a\n", "frontmatter-unclosed", 1, 1, "error", False),
    (".claude", "\n---\nname: a\n---\n", "frontmatter-not-first", 2, 1, "error", False),
    (".claude", "name: a\ndescription: d\n\nbody\n", "frontmatter-unfenced", 1, 1, "error", False),
    (".claude", "Only text.\n", "no-frontmatter", 1, 1, "info", False),
    (".claude", "---\ndescription: d\n---\nx\n", "missing-name", 1, 1, "error", False),
    (".claude", "---\nname: a\n---\nx\n", "missing-description", 1, 1, "error", False),
    (".retinue", "---\nname: a\n---\n" + BODY, "missing-description", 1, 1, "warning", False),
    (".retinue", "---\nname: a\ndescription:\n---\n" + BODY, "missing-description", 3, 1, "warning", False),
    (".claude", agent(name="'a:b'"), "bad-name", 2, 1, "error", False),
    (".claude", agent(name="My Agent"), "name-form", 2, 1, "info", False),
    (".gemini", agent(name="My Agent"), "name-form", 2, 1, "warning", False),
    (".cursor", agent(name=".hidden"), "unsafe-name", 2, 1, "warning", False),
    (".claude", agent(description="x" * 1025), "long-description", 3, 1, "info", False),
    # values
    (".claude", agent("maxTurns: many"), "bad-value", 4, 1, "error", False),
    (".claude", agent("tools: Read, read_file"), "foreign-tool-name", 4, 14, "info", False),
    (".retinue", agent("output_schema: {type: 7}"), "bad-value", 4, 1, "error", False),
    (".claude", agent("tools:"), "empty-tools", 4, 1, "warning", False),
    (".claude", agent("isolation: remote"), "unsupported-value", 4, 1, "error", False),
    (".claude", agent("color: blurple"), "invalid-color", 4, 1, "info", False),
    (".claude", agent("model: sonet"), "unknown-model", 4, 1, "warning", False),
    (".claude", agent("model: wizard"), "unknown-model", 4, 1, "info", False),
    (".copilot", agent("model: GPT-4.1 | 'gpt-5'"), "several-models", 4, 1, "warning", False),
    (".claude", agent("effort: huge"), "unknown-thinking-level", 4, 1, "warning", False),
    (".claude", agent("permissionMode: bypassPermissions"), "bypass-mode", 4, 1, "info", False),
    (".claude", agent("hooks: [3]"), "bad-value", 4, 1, "error", False),
    # tools
    (".claude", agent("tools: Read, Raed"), "unknown-tool", 4, 14, "warning", False),
    (".claude", agent("tools:", "  - Read", "  - Wirte  # c"), "unknown-tool", 6, 5, "warning", False),
    (".claude", agent("disallowedTools: Bsah"), "unknown-tool", 4, 18, "warning", False),
    (".claude", agent("tools: Read, SlashCommand"), "tool-elsewhere", 4, 14, "info", False),
    (".claude", agent("tools: Foo, Bar"), "tools-resolve-to-nothing", 4, 1, "error", False),
    (".claude", agent("tools: Read, Grep", "disallowedTools: Read, Grep"), "all-tools-denied", 5, 1, "warning", False),
    (".claude", agent("tools: Read, Grep", "disallowedTools: Read"), "allowed-and-denied", 4, 8, "info", False),
    (".retinue", agent("tools: read, edit", "readonly: true"), "readonly-write-tool", 4, 14, "warning", False),
    (".retinue", agent("tools: read, bash", "readonly: true"), "readonly-shell", 4, 14, "info", False),
    (".claude", agent("tools: Read, Write", description="A read-only agent"), "says-read-only", 4, 1, "info", False),
    (".codingcode", agent("tools: read_file, bash"), "comma-tools", 4, 1, "warning", True),
    # body
    (".claude", "---\nname: a\ndescription: d\n---\n", "empty-body", 4, 1, "warning", False),
    (".claude", "---\nname: a\ndescription: d\n---\n# Role\n<!-- x -->\n", "no-instructions", 5, 1, "warning", False),
    # bytes
    (".claude", "\ufeff" + agent(), "byte-order-mark", 1, 1, "info", True),
    (".claude", agent().replace("\n", "\r\n", 2), "mixed-line-endings", None, None, "info", True),
    (".claude", agent().replace("\n", "\r"), "mixed-line-endings", 1, 1, "info", True),
]


def lint(*paths: str | Path) -> Any:
    """What `retinue agents lint --json` prints: of these paths, or of everything that is visible from here."""
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(printed):
        assert run(["agents", "lint", *map(str, paths), "--json"]) in (0, 1)
    printed.flush()
    document = json.loads(printed.buffer.getvalue())
    findings = tuple(SimpleNamespace(**each) for each in document["findings"])
    return SimpleNamespace(findings=findings, files=document["files"])


def findings(project: Project, home: str, text: str | bytes) -> tuple[Any, ...]:
    homes = {".copilot": ".github/agents/a.agent.md", ".opencode": ".opencode/agent/a.md"}
    path = project.write(homes.get(home, f"{home}/agents/a.md"), text)
    return lint(path).findings


@pytest.mark.parametrize(
    ("line", "code"), [("thinking: HIGH", "unknown-thinking-level"), ("disallowed_tools: all", "unknown-tool")]
)
def test_what_has_its_effect_is_not_said_to_have_none(project: Project, line: str, code: str) -> None:
    assert code not in [each.code for each in findings(project, ".pi", agent(line))]


@pytest.mark.parametrize(("home", "text", "code", "line", "column", "severity", "fixable"), CASES)
def test_finding(
    project: Project, home: str, text: str, code: str, line: int, column: int, severity: str, fixable: bool
) -> None:
    found = [each for each in findings(project, home, text) if each.code == code]
    assert len(found) == 1, findings(project, home, text)
    if line is not None:
        assert (found[0].line, found[0].column) == (line, column)
    assert (found[0].severity, found[0].fixable) == (severity, fixable)
    assert found[0].reason
    assert found[0].remedy


CLEAN = [
    (".claude", agent("tools: Read, Grep, Bash(git log:*), mcp__x__*", "model: inherit", "color: cyan")),
    (".claude", agent("hooks: []", "model: claude-opus-5", "effort: max")),
    (".pi", agent("tools: all, ext:foo/bar", "model: any/thing:high", "enabled: false")),
    (".pi", agent("tools: none", "prompt_mode: append")),
    (".retinue", agent("readonly: true", "tools: read, grep", "model: '@fast'", "color: '#0aF'")),
    (".copilot", agent("tools: [search, edit/editFiles, github/*]", "model: Claude Sonnet 4.5 (copilot)")),
    (".opencode", agent("permission: {doom_loop: deny, external_directory: deny, context7_docs: deny}")),
    (".opencode", agent("tools: {read: true, 'context7_*': true, context7_docs: true}")),
    (".opencode", agent("tools:", "  write: false", "mode: subagent", "model: opencode/grok-code")),
    (".codingcode", agent("tools: [read_file, search_code]", "readonly: true")),
    (".claude", agent().replace("\n", "\r\n")),
]


@pytest.mark.parametrize(("home", "text"), CLEAN)
def test_good_files_are_clean(project: Project, home: str, text: str) -> None:
    assert findings(project, home, text) == ()


def test_the_suggestion_is_the_name_the_dialect_has(project: Project) -> None:
    remedies = [each.remedy for each in findings(project, ".gemini", agent("tools: [read_fle, glob]"))]
    assert remedies == ["Did you mean 'read_file'?"]


def test_unreadable_things_are_findings_too(project: Project) -> None:
    project.write(".claude/agents/big.md", b"x" * (10 * 1024 * 1024 + 1))
    project.write(".claude/agents/binary.md", b"a\0b")
    (project.root / ".claude/agents/link.md").symlink_to("nowhere")
    (project.root / ".claude/agents/folder.md").mkdir()
    codes = {each.code for each in lint().findings}
    assert codes == {"too-large", "binary", "broken-link"}


def test_shadowed_duplicate_and_case_clashing_names(project: Project) -> None:
    project.write(".claude/agents/one.md", agent())
    project.write(".claude/agents/two.md", agent())
    project.write(".retinue/agents/three.md", agent())
    project.write(".retinue/agents/four.md", agent(name="A"))
    project.write(".retinue/agents/five.md", agent(name="Explore"))
    personal = project.home / ".claude/agents/a.md"
    personal.parent.mkdir(parents=True)
    personal.write_text(agent())
    found = {(each.code, Path(each.file).name, each.severity) for each in lint().findings}
    assert ("shadowed", "a.md", "info") in found
    assert ("shadowed", "one.md", "warning") in found
    assert ("shadowed", "two.md", "warning") in found
    assert ("case-clash", "four.md", "warning") in found
    assert ("case-clash", "three.md", "warning") in found
    assert ("replaces-builtin", "five.md", "info") in found
    (project.root / ".retinue/agents/three.md").unlink()
    found = {(each.code, Path(each.file).name, each.severity) for each in lint().findings}
    assert ("duplicate-name", "one.md", "warning") in found


def test_a_broken_file_that_lets_a_weaker_one_through_is_an_error(project: Project) -> None:
    project.write(".retinue/agents/a.md", "---\nname: a\nhooks: [3]\n")
    project.write(".claude/agents/a.md", agent())
    assert "weaker-file-loads" in {each.code for each in lint().findings}


def test_duplicates_are_found_among_named_files_as_well(project: Project) -> None:
    project.write("lib/agents/x/one.md", agent())
    project.write("lib/agents/y/two.md", agent())
    project.write("lib/agents/y/three.md", agent(name="B"))
    project.write("lib/agents/y/four.md", agent(name="b"))
    project.write("other/agents/five.md", agent())
    found = [(each.code, Path(each.file).name) for each in lint(project.root).findings]
    assert sorted(each for each in found if each[0] in ("duplicate-name", "case-clash")) == [
        ("case-clash", "four.md"),
        ("case-clash", "three.md"),
        ("duplicate-name", "one.md"),
        ("duplicate-name", "two.md"),
    ]


def test_folders_give_agent_files_and_nothing_else(project: Project) -> None:
    for path in (
        "README.md",
        "docs/page.md",
        "node_modules/x/agents/a.md",
        ".claude/skills/s/SKILL.md",
        "agents/x.txt",
    ):
        project.write(path, "no agent here\n")
    project.write(".claude/agents/deep/a.md", agent())
    project.write("kit/agent.markdown", agent(name="b"))
    project.write("kit/agent.yaml", "version: 1\nagent:\n  name: c\n  description: d\n")
    project.write("kit/compose.yaml", "version: 1\nservices: {}\n")
    assert lint(project.root).files == 3


def test_a_path_that_does_not_exist_is_a_usage_error(project: Project) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        lint_paths([project.root / "nowhere"])


@pytest.mark.parametrize(
    "model", ["sonnet", "Sonnet", "inherit", "gpt-5.2", "o3-mini", "a/b", "@fast", "glm-5", "chat/x"]
)
def test_model_names_that_are_fine(model: str) -> None:
    assert is_known(model)


@pytest.mark.parametrize(
    ("model", "meant"), [("sonet", "sonnet"), ("opuss", "opus"), ("cluade-3", "claude-3"), ("wizard", None)]
)
def test_model_names_that_are_slips(model: str, meant: str | None) -> None:
    assert not is_known(model)
    assert suggest(model) == meant


def test_every_code_that_can_appear_is_in_the_table() -> None:
    package = Path(retinue.agents.__file__).parent
    source = "\n".join(path.read_text() for path in package.rglob("*.py"))
    used = set(re.findall(r'(?:Problem|_problem|report|_finding)\(\s*"([a-z0-9-]+)"', source))
    used |= set(re.findall(r'code\s*=\s*"([a-z0-9-]+)"', source)) | {"case-clash", "bad-value"}
    assert used >= {"near-miss-key", "frontmatter-recovered", "unknown-tool", "shadowed"}
    assert used <= set(CODES)


def test_github_annotations_cannot_be_forged() -> None:
    evil = Finding(
        file="a,b:c%.md", code="x", severity="error", reason="one\n::error::two % \r", remedy="ok", line=3, column=4
    )
    text = github_report([evil])
    assert text == "::error file=a%2Cb%3Ac%25.md,line=3,col=4,title=x::one%0A::error::two %25 %0D ok\n"


def test_text_output_shows_control_characters_instead_of_sending_them() -> None:
    evil = Finding(file="a\x1b[31m.md", code="x", severity="info", reason="a\nb\x07")
    assert text_report([evil]) == "a\\x1b[31m.md: info: a\\nb\\x07 [x]\n"


@given(
    st.binary(max_size=300) | st.text(max_size=200).map(lambda text: f"---\n{text}\n---\n".encode("utf-8", "replace"))
)
@calm(150)
def test_any_bytes_can_be_linted(data: bytes) -> None:
    for path in (".claude/agents/a.md", ".pi/agents/a.md", "x/SKILL.md", "k.yaml"):
        for found in lint_subject(LintSubject(parse(data, path=path), data)):
            assert found.finding.code in CODES
            assert found.finding.line is None or found.finding.line >= 1


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not part of the repository")
def test_the_corpus_is_linted_whole_and_known_trouble_is_found() -> None:
    done: LintReport = lint_paths([CORPUS])
    assert done.files > 800
    assert {each.code for each in done.findings} <= set(CODES)
    recovered = [each for each in done.findings if each.code == "frontmatter-recovered"]
    assert len(recovered) > 60
    assert all(each.fixable for each in recovered)


def test_a_file_is_known_by_its_place_and_named_as_it_was_given(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(".pi/agents/a.md", agent("max_turns: 5", "thinkin: high"))
    monkeypatch.chdir(project.root / ".pi/agents")
    found = lint_paths(["a.md"]).findings
    assert [(each.file, each.remedy) for each in found] == [("a.md", "Did you mean 'thinking'?")]


def test_findings_in_a_file_of_kimi_have_the_lines_of_the_file() -> None:
    """Its YAML begins on the first line, and most of its keys are below `agent:`."""

    def lines(text: str) -> list[tuple[str, int | None]]:
        data = text.encode()
        subject = LintSubject(parse(data, path="agents/x.yaml"), data)
        return [(result.finding.code, result.finding.line) for result in lint_subject(subject)]

    nested = "version: 1\nagent:\n  name: x\n  description: d\n  tools:\n    - Foo\n    - Read\n  maxturns: 5\n"
    assert lines(nested) == [("near-miss-key", 8), ("unused-key", 1), ("unknown-tool", 6)]
    recovered = "name: x\ndescription: a: b\ntools: Foo\ntools: Bar\n"
    assert lines(recovered)[:2] == [("frontmatter-recovered", 2), ("duplicate-key", 4)]


def test_findings_in_a_skill_name_its_file_and_can_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "skills" / "demo" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\ndescription: d\nalowed-tools: Read\n---\nRead the change and say what is wrong with it.\n")
    (finding,) = lint_paths([path]).findings
    assert (finding.file, finding.code, finding.line) == (str(path), "near-miss-key", 3)
    assert "Agent Skills" in finding.reason and finding.fixable
    assert lint_paths([path], fix=True).findings == ()
    assert "allowed-tools: Read" in path.read_text()
    assert parse_skill(path.read_bytes(), path=str(path)).spec.name == "demo"
