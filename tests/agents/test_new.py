"""New agent files: names that are safe, places that are right, values that come back (A41)."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from agent_project import Project

from retinue.agents.manage import agents_folder
from retinue.agents.write import check_name, file_name
from retinue.errors import UsageError
from retinue.frontends.cli.main import run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def new(*arguments: str) -> int:
    return run(["agents", "new", *arguments])


@pytest.mark.parametrize(
    "dialect", ["retinue", "claude", "pi", "codingcode", "opencode", "gemini", "copilot", "cursor"]
)
@pytest.mark.parametrize("description", ["Reviews: changes", "Issue #1 or # 2", "'quoted'", "yes", "a\tb", "漢字 😀"])
def test_descriptions_come_back_exactly(project: Project, dialect: str, description: str) -> None:
    assert new("fixer", "--description", description, "--dialect", dialect, "--prompt", "Fix: it # now") == 0
    entry = project.agent("fixer")
    assert entry.spec.description == description
    assert entry.spec.prompt == "Fix: it # now"
    assert entry.parsed.dialect == dialect


@pytest.mark.parametrize("model", ["provider/model:thinking", "a: b", "x #y", "p/m@1.10", "1.10"])
def test_models_come_back_exactly(project: Project, model: str) -> None:
    assert new("fixer", "--description", "d", "--model", model) == 0
    assert project.agent("fixer").spec.model.name == model


def test_fields_left_on_inherit_are_not_written(project: Project) -> None:
    assert new("fixer", "--description", "d", "--model", "inherit", "--thinking", "inherit", "--tools", "all") == 0
    text = (project.root / ".retinue/agents/fixer.md").read_text()
    assert text.split("---")[1] == "\nname: fixer\ndescription: d\n"


def test_the_prompt_is_the_body_from_text_stdin_or_a_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = "First.\n---\nname: not a key\n\n    indented"
    monkeypatch.setattr(sys, "stdin", io.StringIO(prompt))
    project.write("prompt.txt", "\ufeff" + prompt)
    for name, given in (("one", prompt), ("two", "-"), ("three", "@prompt.txt")):
        assert new(name, "--description", "d", "--prompt", given) == 0
        assert project.agent(name).spec.prompt == prompt
    assert new("four", "--description", "d", "--prompt", "@missing.txt") == 2
    assert not (project.root / ".retinue/agents/four.md").exists()


def test_tools_are_written_as_the_dialect_calls_them(project: Project) -> None:
    for dialect, allow in (
        ("claude", ("Read", "Edit", "Bash")),
        ("codingcode", ("read_file", "edit_file", "execute_command")),
    ):
        assert new("x", "--description", "d", "--tools", "read, Edit, bash", "--dialect", dialect) == 0
        assert project.agent("x").spec.tools.allow == allow
        (project.root / f".{dialect}/agents/x.md").unlink()
    assert new("none", "--description", "d", "--tools", "none") == 0
    assert project.agent("none").spec.tools.allow == ()
    assert new("reader", "--description", "d", "--tools", "read-only,web_search") == 0
    assert project.agent("reader").spec.tools.allow == ("read", "grep", "find", "ls", "web_search")


def test_read_only_is_said_and_the_tools_fit_it_in_every_dialect(project: Project) -> None:
    for dialect in ("retinue", "claude", "opencode"):
        assert new(f"ro-{dialect}", "--description", "d", "--readonly", "--dialect", dialect) == 0
        spec = project.agent(f"ro-{dialect}").spec
        assert spec.readonly is True
        assert len(spec.tools.allow or ()) == 4


def test_an_existing_file_is_never_overwritten_without_force(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project.write(".retinue/agents/fixer.md", "mine")
    assert new("fixer", "--description", "d") == 2
    assert "--force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert new("fixer", "--description", "d", "--force") == 0
    assert path.read_text() != "mine"


BAD = [
    "",
    "  ",
    "a/b",
    "..",
    "../x",
    "a\\b",
    "a:b",
    "-x",
    ".hidden",
    "x" * 129,
    "a\nb",
    "a\0b",
    "CON",
    "lpt1.md",
    "\u202ex",
]


@pytest.mark.parametrize("name", BAD)
def test_unsafe_names_are_refused_before_anything_is_written(project: Project, name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)
    before = sorted(project.root.rglob("*"))
    assert run(["agents", "new", "--description", "d", "--", name]) == 2
    assert sorted(project.root.rglob("*")) == before


@pytest.mark.parametrize("name", ["a", "Code Reviewer", "x" * 128, "ünïcode", "a.b", "a_b-c", "審査"])
def test_ordinary_names_are_fine_and_give_ordinary_files(project: Project, name: str) -> None:
    assert new(name, "--description", "d") == 0
    assert project.agent(name).path == str(project.root / ".retinue/agents" / f"{name}.md")


def test_file_names_follow_the_dialect() -> None:
    assert file_name("My Agent!", "codingcode") == "my-agent.md"
    assert file_name("a", "copilot") == "a.agent.md"
    assert file_name("core/reviewer", "claude") == "core-reviewer.md"
    assert file_name("???", "retinue") == "agent.md"


def test_dialects_without_a_folder_say_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder for generic"):
        agents_folder("generic", tmp_path, user=False)


def test_without_a_terminal_a_description_is_required(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert new("fixer") == 2
    assert "--description" in capsys.readouterr().err
    assert not (project.root / ".retinue").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("".join(line + "\n" for line in lines)))
    monkeypatch.setattr(sys, "stderr", Terminal())


def test_the_wizard_asks_for_what_is_missing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(
        monkeypatch,
        *("bad/name", "fixer", "nowhere", "project", "", "Fixes: tests", "read,edit", "openai/gpt-x", "high"),
        *("@not a file", "second line", "."),
    )
    assert new() == 0
    spec = project.agent("fixer").spec
    assert (spec.description, spec.tools.allow) == ("Fixes: tests", ("read", "edit"))
    assert (spec.model.name, spec.model.thinking) == ("openai/gpt-x", "high")
    assert spec.prompt == "@not a file\nsecond line"


def test_the_wizard_writes_nothing_for_answers_left_on_inherit(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "user", "d", "", "", "", "")
    assert new("fixer") == 0
    text = (project.home / ".retinue/agents/fixer.md").read_text()
    assert text.split("---")[1] == "\nname: fixer\ndescription: d\n"


@pytest.mark.parametrize("answers", [0, 1, 3, 5])
def test_leaving_the_wizard_anywhere_writes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    answer(monkeypatch, *["fixer", "project", "d", "", "", "", "prompt"][:answers])
    assert new() == 130
    assert not (project.root / ".retinue").exists()
