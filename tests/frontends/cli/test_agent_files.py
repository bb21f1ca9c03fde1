"""The commands that write and check agent files, as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import run_program
from tests.git_folder import make_git_folder

from retinue.frontends.cli.main import run

AGENT = "---\nname: {name}\ndescription: Use: often\nallowed_tools: Read, Raed\n---\nDo the work you are given.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    make_git_folder(root)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("RETINUE_HOME", "PI_CODING_AGENT_DIR", "RETINUE_DISABLE_BUILTIN_AGENTS", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(root)
    return root


def write(root: Path, path: str, text: str) -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def retinue(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The program itself, in a process of its own."""
    return run_program(arguments, cwd, os.environ)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON that a command printed: exactly one document on stdout."""
    capsys.readouterr()
    run(arguments)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", ["lint", "convert", "new", "eject", "enable", "disable"])
def test_help_teaches_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["agents", command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"retinue agents {command}" in text.split("usage:")[1].split("\n\n", 1)[1]
    assert "--json" in text
    assert "--cwd" in text


def test_lint_as_a_program(project: Path) -> None:
    write(project, ".claude/agents/a.md", AGENT.format(name="a"))
    done = retinue("agents", "lint", cwd=project)
    assert done.returncode == 0
    assert done.stdout.startswith(".claude/agents/a.md:3:17: warning: ")
    assert "[near-miss-key, fixable]" in done.stdout
    assert "1 file: 0 errors, 3 warnings, 0 notes" in done.stderr
    assert retinue("agents", "lint", "--strict", cwd=project).returncode == 1
    write(project, ".claude/agents/b.md", "---\nname: b\n---\nx\n")
    assert retinue("agents", "lint", cwd=project).returncode == 1
    assert retinue("agents", "lint", ".claude/agents/a.md", cwd=project).returncode == 0
    assert retinue("agents", "lint", "missing.md", cwd=project).returncode == 2


def test_lint_in_github_s_format_names_files_from_the_workspace(project: Path) -> None:
    write(project, "sub/.claude/agents/a.md", AGENT.format(name="a"))
    os.environ["GITHUB_WORKSPACE"] = str(project)
    try:
        done = retinue("agents", "lint", "--format", "github", "--cwd", "sub", cwd=project)
    finally:
        del os.environ["GITHUB_WORKSPACE"]
    assert done.stdout.splitlines()[0].startswith("::warning file=sub/.claude/agents/a.md,line=3,col=17,title=")


def test_lint_fix_prints_each_change_and_json_lists_them(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(project, ".claude/agents/a.md", AGENT.format(name="a"))
    assert run(["agents", "lint", "--fix", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines()[:2] == [
        ".claude/agents/a.md:3: fixed: put the value of 'description' in quotes [frontmatter-recovered]",
        ".claude/agents/a.md:4: fixed: renamed 'allowed_tools' to 'tools' [near-miss-key]",
    ]
    assert "unknown-tool" in shown.out
    write(project, ".claude/agents/a.md", AGENT.format(name="a"))
    found = document(capsys, "agents", "lint", "--fix", "--json")
    assert [each["change"] for each in found["fixed"]] == [
        "put the value of 'description' in quotes",
        "renamed 'allowed_tools' to 'tools'",
    ]
    assert (found["files"], found["errors"], found["warnings"]) == (1, 0, 1)
    finding = found["findings"][0]
    assert set(finding) == {"file", "line", "column", "severity", "code", "reason", "remedy", "key", "fixable"}
    assert (finding["code"], finding["line"], finding["column"]) == ("unknown-tool", 4, 14)


def test_convert_prints_the_text_and_tells_losses_apart(project: Path) -> None:
    write(project, ".claude/agents/a.md", "---\nname: a\ndescription: d\ntools: Read\nmemory: user\n---\nGo.\n")
    done = retinue("agents", "convert", "a", "--to", "gemini", cwd=project)
    assert done.stdout == "---\nname: a\ndescription: d\ntools: [read_file]\n---\n\nGo.\n"
    assert done.stderr == "a: lost: memory (user): Gemini CLI has no key for it\n"
    assert done.returncode == 0
    assert retinue("agents", "convert", "a", "--to", "gemini", "--strict", cwd=project).returncode == 1


def test_convert_many_into_a_folder_without_overwriting(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        write(project, f".claude/agents/{name}.md", f"---\nname: {name}\ndescription: d\n---\nGo.\n")
    command = ["agents", "convert", ".claude/agents/a.md", "b", "--to", "pi", "--output", ".pi/agents"]
    assert run(command) == 0
    assert capsys.readouterr().out.splitlines() == [str(project / f".pi/agents/{name}.md") for name in ("a", "b")]
    (project / ".pi/agents/a.md").write_text("mine")
    assert run(command) == 1
    assert (project / ".pi/agents/a.md").read_text() == "mine"
    assert "exists" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0
    assert run(["agents", "convert", "a", "b", "--to", "pi"]) == 2
    assert run(["agents", "convert", "nobody.md", "--to", "pi"]) == 2
    assert run(["agents", "convert", "nobody", "--to", "pi"]) == 2


def test_convert_to_one_file_and_as_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["agents", "convert", "Plan", "--to", "claude", "-o", "out/plan.md"]) == 0
    assert (project / "out/plan.md").read_text().startswith("---\nname: Plan\n")
    found = document(capsys, "agents", "convert", "Plan", "nobody", "--to", "codingcode", "--json")
    made = found["converted"][0]
    assert (made["name"], made["from"], made["to"], made["file"], made["path"]) == (
        "Plan",
        "retinue",
        "codingcode",
        "plan.md",
        None,
    )
    assert made["text"].startswith("---\nname: Plan\n")
    assert found["failed"][0]["code"] == "UNKNOWN_AGENT"


def test_new_eject_disable_and_enable_in_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "agents", "new", "fixer", "--description", "Fixes: things", "--json")
    assert (made["path"], made["effective"], made["findings"]) == (str(project / ".retinue/agents/fixer.md"), True, [])
    ejected = document(capsys, "agents", "eject", "Plan", "--json")
    assert ejected["losses"] == []
    assert Path(ejected["path"]).read_bytes() == Path(ejected["from"]).read_bytes()
    off = document(capsys, "agents", "disable", "explore", "--json")
    assert (off["name"], off["enabled"], off["changed"], off["action"]) == ("Explore", False, True, "stub-written")
    on = document(capsys, "agents", "enable", "Explore", "--json")
    assert (on["enabled"], on["action"]) == (True, "stub-deleted")


def test_a_weaker_copy_says_that_it_does_not_count(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, ".retinue/agents/a.md", "---\nname: a\ndescription: d\n---\nGo.\n")
    assert run(["agents", "new", "a", "--description", "d", "--user"]) == 0
    assert "is still loaded from" in capsys.readouterr().err
    assert document(capsys, "agents", "eject", "a", "--dialect", "claude", "--json")["effective"] is False


def test_errors_reach_stderr_with_a_remedy_and_stdout_stays_empty(project: Path) -> None:
    for arguments in (
        ("disable", "nobody", "--json"),
        ("enable", "nobody"),
        ("eject", "nobody"),
        ("new", "x/y", "--description", "d", "--json"),
        ("new", "x", "--json"),
        ("lint", "--cwd", "nowhere"),
        ("convert", "Plan", "--to", "kimi"),
    ):
        done = retinue("agents", *arguments, cwd=project)
        assert done.returncode == 2, arguments
        assert done.stdout == ""
        assert done.stderr.startswith("retinue: ")
        assert len(done.stderr.splitlines()) >= 2


def test_commands_work_from_another_folder(project: Path, tmp_path: Path) -> None:
    done = retinue("agents", "new", "a", "--description", "d", "--cwd", str(project), cwd=tmp_path)
    assert done.stdout == f"{project}/.retinue/agents/a.md\n"
    assert retinue("agents", "disable", "a", "--cwd", str(project), cwd=tmp_path).returncode == 0
    assert (project / ".retinue/agents/a.md").read_text().startswith("---\nenabled: false\n")


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are always Unicode there")
def test_a_file_name_that_is_no_text_is_no_obstacle(project: Path) -> None:
    path = os.fsencode(project) + b"/.claude/agents/\xff.md"
    Path(os.fsdecode(path)).parent.mkdir(parents=True)
    Path(os.fsdecode(path)).write_text(AGENT.format(name="a"))
    for arguments in (("lint",), ("lint", "--json"), ("lint", "--format", "github"), ("disable", "a"), ("enable", "a")):
        done = subprocess.run(
            [sys.executable, "-m", "retinue", "agents", *arguments], cwd=project, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_lint_reports_servers_that_are_not_configured_or_whose_program_is_not_there(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {
        "github": {"command": "no-such-program-here"},
        "broken": {"args": ["x"]},
        "sound": {"command": sys.executable},
        "remote": {"url": "http://127.0.0.1:9/never-called"},
    }
    home = Path(os.environ["HOME"])
    write(home, ".claude.json", json.dumps({"mcpServers": servers}))
    head = "---\nname: a\ndescription: When to use it\ntools: Read\nmcpServers:\n"
    body = "requiredMcpServers: [nowhere]\n---\nRead the change and say what is wrong with it.\n"
    listed = "  - githb\n  - github\n  - broken\n  - sound\n  - remote\n  - own: {command: ./missing}\n"
    write(project, ".claude/agents/a.md", f"{head}{listed}{body}")
    found = document(capsys, "agents", "lint", "--json")["findings"]
    told = [(each["code"], each["severity"], each["line"]) for each in found]
    assert told == [
        ("server-not-configured", "warning", 6),
        ("server-unusable", "warning", 7),
        ("server-unusable", "warning", 8),
        ("server-unusable", "warning", 11),
        ("server-not-configured", "error", 12),
    ]
    assert found[0]["remedy"] == "Did you mean 'github'?"
    assert "the command 'no-such-program-here' was not found" in found[1]["reason"]
    assert "it has neither `command` nor `url`" in found[2]["reason"]
    assert "the command './missing' was not found" in found[3]["reason"]
    assert "requires the MCP server 'nowhere'" in found[4]["reason"]


def test_lint_says_that_a_server_of_the_project_waits_for_consent(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(project, ".mcp.json", json.dumps({"mcpServers": {"local": {"command": sys.executable}}}))
    text = "---\nname: a\ndescription: When to use it\nmcpServers: [local]\n---\nSay what is wrong.\n"
    write(project, ".claude/agents/a.md", text)
    (finding,) = document(capsys, "agents", "lint", "--json")["findings"]
    assert (finding["code"], finding["severity"]) == ("server-unusable", "info")
    assert finding["remedy"] == f"Consent with: retinue trust add {file}"
