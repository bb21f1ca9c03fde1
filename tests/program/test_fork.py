"""`retinue runs fork`: back to a moment of a run, and on from there as a new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply, Request
from tests.recordings.scenes import make_project


def answer(request: Request) -> Reply:
    said = json.dumps(request.body["messages"])
    number = 2 if "Make it 2" in said else 1
    replies = (
        Reply("Let me look.", [("read", {"path": "src/io.py"})]),
        Reply("", [("edit", {"path": "src/io.py", "edits": [{"oldText": "pass", "newText": f"return {number}"}]})]),
        Reply("", [("bash", {"command": "echo made > made.txt"})]) if number == 1 else Reply("It is 2 now."),
    )
    return replies[request.turn] if request.turn < len(replies) else Reply("It is 1 now.")


@pytest.fixture
def ran(project: Project, serve) -> Project:
    make_project(project)
    serve(answer)
    done = project.retinue("run", "fixer", "Fix src/io.py")
    assert done.returncode == 0, done.stderr
    return project


def runs(project: Project) -> list[dict]:
    return project.json("runs", "list", "--json")["runs"]


def after_turn(project: Project, run_id: str, turn: int) -> int:
    """Return the number of the event that ends a turn."""
    document = project.json("runs", "show", run_id, "--json")
    for event in document["events"]:
        if event["type"] == "turn.ended" and event["turn"] == turn:
            return int(event["seq"])
    raise AssertionError("there is no such turn")


def test_a_fork_goes_on_with_the_past_the_files_and_the_words_of_that_moment(ran: Project) -> None:
    (old,) = runs(ran)
    made = ran.cwd / "made.txt"
    assert made.exists()
    at = after_turn(ran, old["id"], 1)
    done = ran.retinue("runs", "fork", old["id"], "--at", str(at + 1), "--edit", "Make it 2")
    assert done.returncode == 0 and "It is 2 now." in done.stdout, done.stderr
    assert f"at event {at}" in done.stderr and "removed: " in done.stderr and "restored: " in done.stderr
    assert (ran.cwd / "src/io.py").read_text() == "def f(): return 2\n" and not made.exists()
    new, again = runs(ran)
    assert again["id"] == old["id"] and again["usage"] == old["usage"] and new["turns"] == 3
    # What the old run has used is not paid twice: the new one has made two requests.
    assert new["usage"]["output"] * 2 == old["usage"]["output"]


def test_files_stay_where_the_person_wants_them_to(ran: Project) -> None:
    (old,) = runs(ran)
    at = str(after_turn(ran, old["id"], 1))
    done = ran.retinue("runs", "fork", old["id"], "--at", at, "--edit", "Make it 2", "--keep-files")
    assert (ran.cwd / "made.txt").exists() and (ran.cwd / "src/io.py").read_text() == "def f(): return 1\n"
    assert "removed" not in done.stderr


def test_the_task_itself_can_be_said_in_other_words(ran: Project) -> None:
    (old,) = runs(ran)
    done = ran.retinue("runs", "fork", old["id"], "--at", "3", "--edit", "Make it 2")
    assert done.returncode == 0, done.stderr
    assert runs(ran)[0]["task"] == "Make it 2"


def test_a_fork_can_be_resumed_exported_and_forked_again(ran: Project, tmp_path: Path) -> None:
    (old,) = runs(ran)
    at = str(after_turn(ran, old["id"], 1))
    assert ran.retinue("runs", "fork", old["id"], "--at", at, "--edit", "Make it 2").returncode == 0
    new = runs(ran)[0]
    assert ran.retinue("runs", "resume", new["id"], "Go on").returncode == 0
    assert ran.retinue("runs", "fork", new["id"], "--at", at, "--edit", "Make it 2").returncode == 0
    target = str(tmp_path / "fork.cassette.jsonl")
    assert ran.retinue("runs", "export", new["id"], "--cassette", target).returncode == 0
    assert ran.retinue("runs", "diff", old["id"], new["id"]).returncode == 1


@pytest.mark.parametrize(("at", "code"), [("1", 2), ("0", 2), ("x", 2)])
def test_a_moment_before_anything_was_said_is_refused(ran: Project, at: str, code: int) -> None:
    (old,) = runs(ran)
    done = ran.retinue("runs", "fork", old["id"], "--at", at)
    assert done.returncode == code and "Traceback" not in done.stderr
    assert len(runs(ran)) == 1


def test_the_fork_of_a_read_only_agent_is_read_only(project: Project) -> None:
    """A child keeps what the runs above it did not let it have, though its fork has no parent."""

    def child_writes(request: Request) -> Reply:
        tools = {tool["name"] for tool in request.body.get("tools", [])}
        if "Agent" in tools and request.turn == 0:
            call = {
                "subagent_type": "general-purpose",
                "description": "x",
                "prompt": "Write",
                "run_in_background": False,
            }
            return Reply("", [("Agent", call)])
        return Reply("Tools: " + ",".join(sorted(tools)))

    with ModelServer(child_writes) as server:
        project.server = server
        done = project.retinue("-p", "Ask somebody", "--permission-mode", "plan")
        assert done.returncode == 0, done.stderr
        child = next(row for row in runs(project) if row["parent_id"] is not None)
        forked = project.retinue("runs", "fork", child["id"], "--at", "100", "--edit", "Which tools have you got?")
    assert forked.returncode == 0, forked.stderr
    assert "read" in forked.stdout and "write" not in forked.stdout and "edit" not in forked.stdout
