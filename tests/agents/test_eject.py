"""Ejecting: the copy means what the original meant (case A40)."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_project import Project
from agent_specs import meaning
from msgspec.structs import replace

from retinue.agents.write import write_agent
from retinue.core.spec import AgentSpec, DialectName, ModelPolicy, ToolPolicy

BASE = AgentSpec(name="a", description="Use it: always #1", prompt="Do the work.\n\n---\nstill the prompt")
A40 = [
    BASE,
    replace(BASE, tools=ToolPolicy(allow=("read", "grep"))),
    replace(BASE, tools=ToolPolicy(allow=("read", "bash", "edit", "write", "grep", "find", "ls"))),
    replace(BASE, tools=ToolPolicy(allow=())),
    replace(BASE, tools=ToolPolicy(allow=("read",), selectors=("ext:a",), deny=("bash",))),
    replace(BASE, background=False),
    replace(BASE, background=True, isolated=False, inherit_context=True),
    replace(BASE, tools=ToolPolicy(extensions=("a", "b"), exclude_extensions=("c",)), skills=("x", "y")),
    replace(BASE, tools=ToolPolicy(extensions=False), skills=True),
    replace(BASE, tools=ToolPolicy(extensions=True), skills=False),
    replace(BASE, subagents=("b", "c")),
    replace(BASE, subagents=True),
    replace(BASE, model=ModelPolicy(name="p/m:high", thinking="off"), max_turns=0, prompt_mode="append"),
    replace(BASE, memory="project", isolation="worktree", display_name="A: one", color="#FF00aa"),
    replace(BASE, extra={"version": "1.10", "when": {"a": ["b", None]}}),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


@pytest.mark.parametrize("spec", A40)
@pytest.mark.parametrize("origin", ["pi", "retinue"])
def test_eject_then_reload_gives_the_identical_configuration(
    project: Project, spec: AgentSpec, origin: DialectName
) -> None:
    folder = project.home / (".pi/agent/agents" if origin == "pi" else ".retinue/agents")
    folder.mkdir(parents=True)
    (folder / "a.md").write_text(write_agent(spec, origin))
    before = project.agent("a")
    assert before.source == "user"
    for dialect in ("pi", "retinue"):
        made = project.agents("eject", "a", "--dialect", dialect)
        after = project.agent("a")
        assert after.path == made["path"]
        assert after.source == "project"
        assert made["losses"] == []
        assert meaning(after.spec) == meaning(before.spec) == meaning(spec)
        Path(made["path"]).unlink()


def test_every_built_in_agent_can_be_ejected_verbatim(project: Project) -> None:
    builtin = [entry for entry in project.catalog().entries if entry.source == "builtin"]
    assert builtin
    for entry in builtin:
        made = Path(project.agents("eject", entry.qualified_name, "--dialect", entry.dialect)["path"])
        assert made.read_bytes() == Path(entry.path).read_bytes()
        assert meaning(project.agent(entry.name).spec) == meaning(entry.spec)
        made.unlink()


def test_a_devkit_agent_ejected_as_one_of_ours_keeps_its_hard_time_limit(project: Project) -> None:
    made = project.agents("eject", "explorer")
    assert "timeout_seconds: 900" in Path(made["path"]).read_text()
    assert made["losses"] == []
    assert project.agent("explorer").spec.timeout_seconds == 900


def test_the_same_dialect_is_copied_byte_for_byte_with_comments_and_line_endings(project: Project) -> None:
    text = "---\r\n# mine\r\nname: a\r\ndescription: 'd'   # why\r\nfree: [x]\r\n---\r\nDo it.\r\n"
    source = project.home / ".claude/agents/deep/file.md"
    source.parent.mkdir(parents=True)
    source.write_bytes(text.encode())
    made = Path(project.agents("eject", "a", "--dialect", "claude")["path"])
    assert made == project.root / ".claude/agents/a.md"
    assert made.read_bytes() == text.encode()


def test_another_dialect_gets_its_own_names_and_the_losses_are_told(project: Project) -> None:
    made = project.agents("eject", "Explore", "--dialect", "claude")
    assert "tools: Read, Bash, Grep, Glob, LS" in Path(made["path"]).read_text()
    assert [loss["kind"] for loss in made["losses"]] == ["ignored-there"]
    assert project.agent("Explore").path == made["path"]


def test_existing_files_are_replaced_only_by_force(project: Project) -> None:
    path = project.write(".retinue/agents/Plan.md", "---\nname: mine\n---\nMine.\n")
    assert "exists" in project.refused("eject", "Plan")
    assert path.read_text() == "---\nname: mine\n---\nMine.\n"
    assert project.agents("eject", "Plan", "--force")["replaced"]
    assert project.agent("Plan").path == str(path)


def test_an_agent_is_not_copied_onto_itself(project: Project) -> None:
    project.write(".retinue/agents/a.md", "---\nname: a\n---\nMine.\n")
    assert "already" in project.refused("eject", "a", "--force")
    assert "nobody" in project.refused("eject", "nobody")


def test_an_ejected_built_in_agent_is_switched_off_in_its_file(project: Project) -> None:
    made = Path(project.agents("eject", "Plan")["path"])
    assert project.agents("disable", "Plan")["action"] == "edited"
    assert made.read_text().startswith("---\nenabled: false\nname: Plan\n")


def test_the_user_folder_is_chosen_by_option_and_by_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ejected(*options: str) -> Path:
        return Path(project.agents("eject", "Plan", "--user", *options)["path"])

    assert ejected() == project.home / ".retinue/agents/Plan.md"
    monkeypatch.setenv("RETINUE_HOME", str(project.home / "elsewhere"))
    assert ejected() == project.home / "elsewhere/agents/Plan.md"
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(project.home / "pi"))
    assert ejected("--dialect", "pi") == project.home / "pi/agents/Plan.md"
    assert "no user folder" in project.refused("eject", "Plan", "--user", "--dialect", "copilot")


def test_a_project_folder_above_is_used_before_a_new_one_is_made(project: Project) -> None:
    below = project.root / "src/deep"
    below.mkdir(parents=True)
    above = project.agents("eject", "Plan", "--cwd", str(below))
    assert above["path"] == str(project.root / ".retinue/agents/Plan.md")
    (below / ".retinue/agents").mkdir(parents=True)
    nearest = project.agents("eject", "Explore", "--cwd", str(below))
    assert nearest["path"] == str(below / ".retinue/agents/Explore.md")
