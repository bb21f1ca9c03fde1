"""Tests of agents that start others, ask people, and work on fixtures of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.recordings.scenes import git

LEAD = "---\nname: lead\ndescription: Leads.\ntools: read, edit, Agent(helper)\n---\nYou lead.\n"
HELPER = "---\nname: helper\ndescription: Helps.\ntools: read\n---\nYou help.\n"
HEAD = "agent: lead\ncases:\n- name: leads\n  task: Lead\n  model: {scenario: lead.cassette.jsonl}\n"


def lead(request: Request) -> Reply:
    """Two helpers, one in the background; each reads another file and says so."""
    system = str(request.body["system"])
    task = str(request.body["messages"][0]["content"])
    if 'name="helper"' in system:
        path = "f1.txt" if "ONE" in task else "f2.txt"
        if request.turn == 0:
            return Reply("", [("read", {"path": path})])
        return Reply(f"I have read {path}.")
    if request.turn == 0:
        common = {"subagent_type": "helper", "description": "help"}
        one = {**common, "prompt": "ONE", "run_in_background": True}
        two = {**common, "prompt": "TWO", "run_in_background": False}
        return Reply("", [("Agent", one), ("Agent", two)])
    if request.turn == 2:
        return Reply("", [("edit", {"path": "f0.txt", "edits": [{"oldText": "alpha", "newText": "omega"}]})])
    return Reply("All is done.")


@pytest.fixture
def led(project: Project, serve) -> Project:
    """A project with a lead and its helper, and a cassette of a run of both."""
    project.mode = ""
    folder = project.cwd / ".claude/agents"
    folder.mkdir(parents=True)
    (folder / "lead.md").write_text(LEAD)
    (folder / "helper.md").write_text(HELPER)
    git(project.cwd, "init", "-q")
    git(project.cwd, "add", ".")
    git(project.cwd, "-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "-qm", "first")
    serve(lead)
    done = project.retinue("run", "lead", "Lead", "--permission-mode", "acceptEdits")
    assert done.returncode == 0, done.stderr
    runs = project.json("runs", "list", "--json")["runs"]
    main = next(row for row in runs if row["agent"] == "lead")
    target = str(folder / "lead.cassette.jsonl")
    assert project.retinue("runs", "export", main["id"], "--cassette", target).returncode == 0
    git(project.cwd, "checkout", "-q", ".")
    project.server = None
    return project


def write(project: Project, text: str) -> None:
    (project.cwd / ".claude/agents/lead.test.yaml").write_text(text)


def test_children_are_played_by_their_own_recordings(led: Project) -> None:
    expect = "  expect: {files: {written: [f0.txt], read: [f1.txt, f2.txt]}, children: {agents: [helper, helper]}}\n"
    write(led, HEAD + expect)
    done = led.retinue("test", "--trust")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_helper_that_lost_its_tool_fails_the_test_of_its_lead(led: Project) -> None:
    write(led, HEAD + "  expect: {tools: {called: [read]}}\n")
    assert led.retinue("test", "--trust").returncode == 0
    helper = led.cwd / ".claude/agents/helper.md"
    helper.write_text(HELPER.replace("tools: read", "tools: ls"))
    done = led.retinue("test", "--trust")
    assert done.returncode == 1 and "ledger: helper turn 1: read(path='f1.txt') failed" in done.stdout, done.stdout


@pytest.mark.parametrize(("answer", "code"), [("allow", 0), ("deny", 1)])
def test_approvals_are_answered_as_the_file_says(led: Project, answer: str, code: int) -> None:
    case = f"  permission_mode: default\n  answers: {{approval: {answer}}}\n"
    write(led, HEAD + case + "  expect: {denials: [], files: {written: [f0.txt]}}\n")
    done = led.retinue("test", "--trust")
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        assert "denials: `edit` was denied" in done.stdout


def test_a_bundle_a_commit_and_a_folder_are_fixtures(led: Project, tmp_path: Path) -> None:
    git(led.cwd, "bundle", "create", "-q", str(led.cwd / ".claude/agents/all.bundle"), "HEAD", "--all")
    commit = git(led.cwd, "rev-parse", "HEAD").strip()
    folder = led.cwd / ".claude/agents/small"
    folder.mkdir()
    for number in range(3):
        (folder / f"f{number}.txt").write_text("alpha\n")
    expect = "  expect: {files: {written: [f0.txt]}}\n"
    for fixture in ("all.bundle", f"{{repo: ., ref: {commit}}}", "small"):
        write(led, f"{HEAD}  fixture: {fixture}\n{expect}")
        done = led.retinue("test", "--trust")
        assert done.returncode == 0, (fixture, done.stdout, done.stderr)
    write(led, f"{HEAD}  fixture: {{repo: ., ref: nothing}}\n{expect}")
    done = led.retinue("test", "--trust")
    assert done.returncode == 2 and "cannot be copied at nothing" in done.stdout


def test_more_turns_than_were_recorded_fail_and_say_so(led: Project) -> None:
    path = led.cwd / ".claude/agents/lead.cassette.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if '"run":2,' in line and '"type":"assistant.ended"' in line)
    path.write_text("".join(lines[:last] + lines[last + 1 :]))
    write(led, HEAD + "  expect: {ended: completed}\n")
    done = led.retinue("test", "--trust")
    assert done.returncode == 1 and "scenario: The recording has" in done.stdout, done.stdout


def test_agents_of_a_project_without_a_repository_are_tested_with_a_fixture(led: Project) -> None:
    import shutil

    shutil.rmtree(led.cwd / ".git")
    folder = led.cwd / ".claude/agents/small"
    folder.mkdir()
    for number in range(3):
        (folder / f"f{number}.txt").write_text("alpha\n")
    write(
        led, HEAD + "  fixture: small\n  expect: {children: {agents: [helper, helper]}, files: {written: [f0.txt]}}\n"
    )
    done = led.retinue("test", "--trust")
    assert done.returncode == 0, done.stdout + done.stderr
    write(led, HEAD + "  expect: {ended: completed}\n")
    done = led.retinue("test", "--trust")
    assert done.returncode == 2 and "Name a folder" in done.stdout, done.stdout + done.stderr
