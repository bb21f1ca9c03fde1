"""`retinue memory` and `retinue skills`: what they print, what they refuse, and that nothing is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from retinue.frontends.cli.main import run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    monkeypatch.chdir(folder)
    return folder


def remember(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text)


def out(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_a_memory_travels_from_one_project_to_another(project, tmp_path, capfd):
    own = tmp_path / "own" / "agent-memory" / "helper"
    remember(own, MEMORY="- one\n", detail="the details\n")
    made = out(capfd, "memory", "snapshot", "helper")
    assert made["files"] == ["MEMORY.md", "detail.md"]
    archive = Path(made["archive"])
    assert archive.stat().st_mode & 0o777 == 0o600
    assert run(["memory", "snapshot", "helper"]) == 2  # it exists
    other = tmp_path / "other"
    other.mkdir()
    remember(other / ".retinue" / "agent-memory" / "helper", MEMORY="- two\n", detail="other details\n")
    found = out(capfd, "memory", "restore", str(archive), "--scope", "project", "--cwd", str(other))
    assert found["changed"] == ["MEMORY.md"]
    assert len(found["conflicts"]) == 1
    folder = Path(found["path"])
    assert (folder / "MEMORY.md").read_text() == "- two\n- one\n"
    assert (folder / "detail.md").read_text() == "other details\n"
    assert (folder / found["conflicts"][0]).read_text() == "the details\n"
    again = out(capfd, "memory", "restore", str(archive), "--scope", "project", "--cwd", str(other))
    assert (again["added"], again["changed"], again["conflicts"]) == ([], [], [])


def test_show_lists_every_memory_and_those_of_others(project, tmp_path, capfd):
    assert out(capfd, "memory", "show") == {"memories": []}
    remember(tmp_path / "own" / "agent-memory" / "a", MEMORY="- u\n")
    remember(tmp_path / "home" / ".claude" / "agent-memory" / "a", MEMORY="- c\n")
    found = out(capfd, "memory", "show", "a")["memories"]
    assert [(each["scope"], each["own"], each["index"]) for each in found] == [
        ("user", True, "- u"),
        ("user", False, "- c"),
    ]
    assert run(["memory", "show", "a"]) == 0
    text = capfd.readouterr().out
    assert "read only" in text
    assert "| - u" in text
    assert run(["memory", "show", "nobody"]) == 2


@pytest.mark.parametrize("name", ["..", "a/b", "", "a b", ".hidden"])
def test_unsafe_names_are_refused_by_every_command(project, name, capfd):
    (project / "x.tar.gz").write_bytes(b"garbage")
    assert run(["memory", "show", name or "../"]) == 2
    assert run(["memory", "snapshot", name]) == 2
    assert "cannot be a folder" in capfd.readouterr().err
    assert run(["memory", "restore", "x.tar.gz"]) == 2
    assert not (project / ".retinue").exists()


def test_linked_memories_are_refused(project, tmp_path, capfd):
    remember(tmp_path / "elsewhere", MEMORY="- secret\n")
    (tmp_path / "own" / "agent-memory").mkdir(parents=True)
    (tmp_path / "own" / "agent-memory" / "a").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert run(["memory", "snapshot", "a"]) == 2
    assert "symbolic link" in capfd.readouterr().err
    assert out(capfd, "memory", "show") == {"memories": []}


def test_skills_list_and_show(project, tmp_path, capfd):
    assert out(capfd, "skills", "list") == {"skills": [], "shadowed": [], "refused": []}
    for root, text in ((project / ".claude", "PROJECT"), (tmp_path / "home" / ".claude", "USER")):
        folder = root / "skills" / "pdf"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\ndescription: about {text}\nmetadata: {{}}\n---\n{text} of $0\n")
        (folder / "data.txt").write_text("x")
    (project / ".claude" / "skills" / "linked").symlink_to(folder, target_is_directory=True)
    listed = out(capfd, "skills", "list")
    assert [Path(each["path"]).name for each in listed["refused"]] == ["linked"]
    assert [(each["name"], each["source"]) for each in listed["skills"]] == [("pdf", "project")]
    assert [each["source"] for each in listed["shadowed"]] == ["user"]
    shown = out(capfd, "skills", "show", "PDF", "--arguments", "a b")
    assert shown["text"] == "PROJECT of a"
    assert shown["files"] == ["data.txt"]
    assert shown["ignored"] == ["metadata"]
    assert run(["skills", "list"]) == 0
    assert "pdf  (project)  about PROJECT" in capfd.readouterr().out
    assert run(["skills", "show", "pdf"]) == 0
    assert "PROJECT of $0" in capfd.readouterr().out
    assert run(["skills", "show", "nope"]) == 2


def test_folders_of_skills_in_a_projects_settings_stay_in_the_project(project, tmp_path, capfd, monkeypatch):
    for folder in (project / "more" / "inside", tmp_path / "home" / "private" / "outside"):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\ndescription: d\n---\nx\n")
    (project / ".retinue").mkdir()
    paths = ["more", "~/private", os.path.relpath(tmp_path / "home" / "private", project)]
    (project / ".retinue" / "settings.json").write_text(json.dumps({"skills": {"paths": paths}}))
    assert [each["name"] for each in out(capfd, "skills", "list")["skills"]] == ["inside"]
    (project / ".retinue" / "settings.json").unlink()
    (tmp_path / "own").mkdir(exist_ok=True)
    (tmp_path / "own" / "settings.json").write_text(json.dumps({"skills": {"paths": paths[:2]}}))
    assert {each["name"] for each in out(capfd, "skills", "list")["skills"]} == {"inside", "outside"}
