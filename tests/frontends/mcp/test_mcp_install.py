"""`retinue mcp install`: the configuration of each host, printed or written, without losing what a file says."""

from __future__ import annotations

import json
import tomllib

import pytest
from tests.program.conftest import Project

FILES = {
    "claude": (".mcp.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "gemini": (".gemini/settings.json", "mcpServers"),
    "opencode": ("opencode.json", "mcp"),
    "vscode": (".vscode/mcp.json", "servers"),
}


@pytest.mark.parametrize("host", FILES)
def test_the_file_of_the_project_gets_the_server_and_keeps_the_rest(project: Project, host: str) -> None:
    file, key = FILES[host]
    path = project.cwd / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"other": 1, key: {"theirs": {"command": "x"}}}))
    done = project.retinue("mcp", "install", host, "--write", "--agents", "Explore")
    assert done.returncode == 0, done.stderr
    data = json.loads(path.read_text())
    assert data["other"] == 1
    assert data[key]["theirs"] == {"command": "x"}
    entry = data[key]["retinue"]
    words = entry["command"] if host == "opencode" else [entry["command"], *entry["args"]]
    assert words[-3:] == ["mcp", "--agents", "Explore"]
    before = path.read_text()
    again = project.retinue("mcp", "install", host, "--write", "--agents", "Explore")
    assert "already" in again.stderr
    assert path.read_text() == before


def test_codex_gets_a_table_behind_what_is_there_and_time_to_wait(project: Project) -> None:
    path = project.cwd / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('# mine\nmodel = "gpt"\n\n[mcp_servers.other]\ncommand = "x"\n')
    assert project.retinue("mcp", "install", "codex", "--write").returncode == 0
    assert path.read_text().startswith("# mine\n")
    data = tomllib.loads(path.read_text())
    assert data["model"] == "gpt"
    assert data["mcp_servers"]["other"] == {"command": "x"}
    assert data["mcp_servers"]["retinue"]["tool_timeout_sec"] == 3600
    refused = project.retinue("mcp", "install", "codex", "--write", "--tools", "per-agent")
    assert refused.returncode != 0
    assert "left as it is" in refused.stderr


def test_a_file_with_comments_is_left_alone(project: Project) -> None:
    path = project.home / ".config" / "zed" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('// mine\n{"theme": "One Dark"}\n')
    done = project.retinue("mcp", "install", "zed", "--write")
    assert done.returncode != 0
    assert "by hand" in done.stderr
    assert path.read_text() == '// mine\n{"theme": "One Dark"}\n'
    shown = project.retinue("mcp", "install", "zed")
    entry = json.loads(shown.stdout)["context_servers"]["retinue"]
    assert entry["args"][-2:] == ["--cwd", str(project.cwd.resolve())]


def test_hosts_are_listed_and_a_wrong_one_is_refused(project: Project) -> None:
    listed = project.json("mcp", "install", "--json")["hosts"]
    assert {"claude", "codex", "cursor", "vscode", "zed"} <= {each["host"] for each in listed}
    wrong = project.retinue("mcp", "install", "emacs")
    assert wrong.returncode == 2
    assert "claude" in wrong.stderr


def test_agents_of_retinue_do_not_use_its_own_server(project: Project) -> None:
    project.retinue("mcp", "install", "claude", "--write")
    assert json.loads((project.cwd / ".mcp.json").read_text())["mcpServers"]["retinue"]
    assert project.json("servers", "list", "--json")["servers"] == []
