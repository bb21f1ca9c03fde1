"""The status line: templates, commands, and what a bad one must not do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.frontends.tui import statusline
from retinue.frontends.tui.statusline import TEMPLATE, Facts, branch_of, fill, output_of
from retinue.settings.load import load_settings

FULL = Facts(
    state="working",
    mode="plan",
    session_id="3f2a9c1d0000",
    model="anthropic/claude-sonnet-4-5",
    cwd="/home/u/project",
    branch="main",
    cost_usd=0.42,
    context_tokens=50_000,
    window=200_000,
    running=2,
    queued=1,
    inbox=3,
)


def test_the_default_says_what_is_known_and_nothing_else() -> None:
    assert fill(TEMPLATE, Facts(mode="default")) == "asks before changes"
    facts = "claude-sonnet-4-5 · project ⎇ main · ctx 25% · ~$0.42 · 2 agents running, 1 queued · 3 to answer"
    assert fill(TEMPLATE, FULL) == f"⏸ plans only · {facts}"


def test_one_agent_is_no_agents_and_holding_is_said_in_plain_words() -> None:
    assert fill("{agents}", Facts(running=1)) == "1 agent running"
    assert fill("{agents}", Facts(queued=1)) == "1 agent queued"
    assert fill("{agents}", Facts()) == ""
    assert fill("{state}", Facts(state="holding")) == "waiting for agents"


def test_where_there_is_no_room_the_least_important_parts_go_and_what_waits_stays() -> None:
    narrow = fill(TEMPLATE, FULL, 78)
    assert narrow == "⏸ plans only · claude-sonnet-4-5 · 2 agents running, 1 queued · 3 to answer"
    assert fill(TEMPLATE, FULL, 30) == "⏸ plans only · 3 to answer"
    assert fill(TEMPLATE, FULL, 1) == "⏸ plans only"
    assert fill("{model}[ at {branch}][ of {nosuch}]", FULL, 30) == "claude-sonnet-4-5 at main"


def test_a_part_in_brackets_goes_with_its_facts() -> None:
    assert fill("{model}[ at {branch}]", Facts(model="a/b")) == "b"
    assert fill("[plain] {nosuch} {model}", Facts(model="a/b")) == "[plain] {nosuch} b"


@given(st.text(max_size=200))
def test_no_template_breaks_it(template: str) -> None:
    assert isinstance(fill(template, FULL), str)


async def test_a_command_gets_the_facts_as_json(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    line = await output_of(f"cat > {told}; echo 'hello\nmore'", FULL, os.environ, tmp_path)
    assert line.plain == "hello"
    facts = json.loads(told.read_text())
    assert facts["model"] == {"id": "anthropic/claude-sonnet-4-5", "display_name": "claude-sonnet-4-5"}
    assert facts["workspace"]["current_dir"] == "/home/u/project"
    assert facts["cost"]["total_cost_usd"] == 0.42
    assert facts["context_window"]["used_percentage"] == 25
    assert facts["agents"] == {"running": 2, "queued": 1}


async def test_colours_are_kept_and_nothing_else(tmp_path: Path) -> None:
    line = await output_of(r"printf '\033[31mred\033[0m\033[2J\007\tx'", FULL, os.environ, tmp_path)
    assert "red" in line.plain and "\x1b" not in line.plain and "\x07" not in line.plain
    assert [span.style.color.number for span in line.spans] == [1]


async def test_a_command_that_fails_says_so(tmp_path: Path) -> None:
    assert (
        await output_of("echo broken >&2; exit 3", FULL, os.environ, tmp_path)
    ).plain == "status line: exit 3: broken"
    assert "exit 127" in (await output_of("no-such-command-here", FULL, os.environ, tmp_path)).plain


async def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(statusline, "TIMEOUT_SECONDS", 0.5)
    pid = tmp_path / "pid"
    line = await output_of(f"sleep 600 & echo $! > {pid}; sleep 600", FULL, os.environ, tmp_path)
    assert "took more than" in line.plain
    child = int(pid.read_text())
    for _ in range(200):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            break
        if state == "Z":
            break
        import asyncio

        await asyncio.sleep(0.01)
    else:
        raise AssertionError("it still runs")


async def test_a_flood_is_bounded(tmp_path: Path) -> None:
    line = await output_of("head -c 300000 /dev/zero | tr '\\0' x", FULL, os.environ, tmp_path)
    assert len(line.plain) <= statusline.MAX_OUTPUT_BYTES


@pytest.mark.parametrize(("where", "counts"), [("user", True), ("project", False), ("local", False)])
def test_a_cloned_project_cannot_bring_a_command(tmp_path: Path, where: str, counts: bool) -> None:
    from retinue.settings.write import target_file

    env = {"HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home")}
    project = tmp_path / "project"
    project.mkdir()
    path = target_file(project, where, env)
    path.parent.mkdir()
    path.write_text('{"statusLine": {"command": "echo hi"}}')
    assert load_settings(project, environment=env).settings.status_line_command == ("echo hi" if counts else None)


def test_claude_codes_form_is_understood(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    settings = {"statusLine": {"type": "command", "command": "~/.claude/statusline.sh", "padding": 0}}
    (tmp_path / "home" / "settings.json").write_text(json.dumps(settings))
    assert load_settings(tmp_path, environment=env).settings.status_line_command == "~/.claude/statusline.sh"


def test_the_branch_is_found_from_below_and_in_a_worktree(tmp_path: Path) -> None:
    import subprocess

    git = ["git", "-c", "user.email=a@b", "-c", "user.name=n"]
    subprocess.run([*git, "init", "-q", "-b", "trunk"], cwd=tmp_path, check=True)
    (tmp_path / "below").mkdir()
    assert branch_of(tmp_path / "below") == "trunk"
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True)
    subprocess.run([*git, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree")], cwd=tmp_path, check=True)
    assert branch_of(tmp_path / "tree") == "other"
    assert branch_of(Path("/")) == ""
