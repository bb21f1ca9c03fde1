"""The doctor on language servers, the converter and the folder of results."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.app.doctor import DoctorFinding, Installation, examine
from retinue.core.install import install_command
from retinue.frontends.cli.main import run


def findings(cwd: Path, category: str, **environment: str) -> dict[str, DoctorFinding]:
    base = {"HOME": str(cwd.parent), "RETINUE_HOME": str(cwd.parent / "home"), "PATH": os.environ["PATH"]}
    return {each.name: each for each in examine(Installation(cwd, {**base, **environment}), [category])}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_language_servers_that_are_there_and_that_are_missing(project: Path, monkeypatch: Any) -> None:
    (project / "a.py").write_text("x = 1\n")
    (project / "b.zig").write_text("x")
    found = findings(project, "lsp")
    assert found["tool"].grade == "ok" and "definition" in found["tool"].detail
    assert found["ty"].grade == "ok" and ".py" in found["ty"].detail
    assert found["zig"].grade == "warning" and found["zig"].remedy == "Install it: zls"
    monkeypatch.setattr("retinue.capabilities.lsp.catalog.sys.executable", "")
    nothing = findings(project, "lsp", PATH=str(project))
    assert nothing["ty"].grade == "warning" and install_command("lsp") in nothing["ty"].remedy
    assert "basedpyright" not in nothing, "one remedy for one language"


def test_what_the_settings_take_away_is_said(project: Path) -> None:
    assert findings(project, "lsp", RETINUE_ALLOW_LSP_TOOLS="false")["tool"].grade == "info"
    open_wide = findings(project, "lsp", RETINUE_LSP_SANDBOX="off")["sandbox"]
    assert open_wide.grade == "warning" and "lsp.sandbox on" in open_wide.remedy
    assert findings(project, "convert", RETINUE_CONVERT_ENABLED="false")["converter"].grade == "info"


def test_the_converter_and_its_formats(project: Path, monkeypatch: Any) -> None:
    found = findings(project, "convert")
    assert found["converter"].detail.startswith("markitdown ") and found["formats"].grade == "ok"
    monkeypatch.setitem(sys.modules, "markitdown", None)
    missing = findings(project, "convert")["converter"]
    assert missing.grade == "warning" and install_command("convert") in missing.remedy


@pytest.mark.skipif(os.name != "posix", reason="modes of folders")
def test_a_folder_of_results_that_cannot_be_written_fails(project: Path, capsys: Any, monkeypatch: Any) -> None:
    fine = findings(project, "permissions")["results"]
    assert fine.grade == "ok"
    in_the_way = project.parent / "file"
    in_the_way.write_text("not a folder")
    broken = findings(project, "permissions", RETINUE_HOME=str(in_the_way))["results"]
    assert broken.grade == "failure" and "RETINUE_HOME" in broken.remedy
    monkeypatch.setenv("RETINUE_HOME", str(in_the_way))
    assert run(["doctor", "permissions", "--json", "--cwd", str(project)]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_agent_files_that_cannot_be_loaded_are_counted(project: Path) -> None:
    folder = project / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "good.md").write_text("---\nname: good\ndescription: Good.\n---\nWork.\n")
    assert "1 project" in findings(project, "agents")["agents"].detail
    (project / ".claude" / "agents").mkdir(parents=True)
    (project / ".claude" / "agents" / "bad.md").write_text("---\ndescription: It has no name.\n---\nWork.\n")
    bad = findings(project, "agents")["agents"]
    assert bad.grade == "warning" and "1 agent file skipped" in bad.detail
