"""`retinue replay` and `retinue runs diff`: the same run again, and two runs side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply, Request
from tests.recordings.scenes import fix, git, make_project, run_fixer

CASSETTE = "fix.cassette.jsonl"


@pytest.fixture
def recorded(project: Project) -> Project:
    """A project with a run of its agent, and a cassette of that run."""
    make_project(project)
    with ModelServer(fix) as server:
        run_id = run_fixer(project, server)
    assert project.retinue("runs", "export", run_id, "--cassette", CASSETTE).returncode == 0
    return project


def change(project: Project, before: str, after: str) -> None:
    path = project.cwd / CASSETTE
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_cassette_plays_again_without_differences_and_without_executing_anything(recorded: Project) -> None:
    done = recorded.retinue("replay", CASSETTE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 run, 4 turns, 3 calls" in done.stdout and "No differences." in done.stdout
    assert git(recorded.cwd, "status", "--porcelain") == f"?? {CASSETTE}\n"


def test_live_tools_show_that_the_world_has_changed(recorded: Project) -> None:
    assert recorded.retinue("replay", CASSETTE, "--tools", "live").returncode == 0
    change(recorded, "1\\tdef f(): pass", "1\\tdef g(): pass")
    drifted = recorded.retinue("replay", CASSETTE, "--tools", "live", "--json")
    document = json.loads(drifted.stdout)
    kinds = [each["kind"] for each in document["differences"]]
    assert drifted.returncode == 1 and not document["same"] and kinds == ["result"]


def test_a_call_that_would_be_refused_today_is_a_difference(recorded: Project) -> None:
    change(recorded, '"allow":["read","edit","bash"', '"allow":["read","bash"')
    done = recorded.retinue("replay", CASSETTE)
    assert done.returncode == 1 and "other tools are offered" in done.stdout
    assert "edit(path='src/io.py'" in done.stdout and "is not among your tools" in done.stdout


def test_a_replay_plays_on_another_machine(recorded: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other", tmp_path / "other-home")
    other.cwd.mkdir()
    other.home.mkdir()
    shutil.copyfile(recorded.cwd / CASSETTE, other.cwd / CASSETTE)
    done = other.retinue("replay", CASSETTE)
    assert done.returncode == 0 and "empty folder" in done.stderr, done.stdout + done.stderr
    live = other.retinue("replay", CASSETTE, "--tools", "live")
    assert live.returncode == 2 and "Traceback" not in live.stderr


def test_the_run_is_shown_as_it_stood_after_an_event(recorded: Project) -> None:
    done = recorded.retinue("replay", CASSETTE, "--to", "9", "--json")
    moment = json.loads(done.stdout)
    assert moment["turn"] == 1 and len(moment["messages"]) == 3
    assert recorded.retinue("replay", CASSETTE, "--to", "0").returncode == 2


def test_two_runs_are_compared_side_by_side(recorded: Project) -> None:
    def otherwise(request: Request) -> Reply:
        if request.turn == 1:
            return Reply("", [("edit", {"path": "src/io.py", "edits": [{"oldText": "pass", "newText": "return 2"}]})])
        return fix(request)

    with ModelServer(otherwise) as server:
        other = run_fixer(recorded, server)
    done = recorded.retinue("runs", "diff", CASSETTE, other)
    assert done.returncode == 1, done.stderr
    assert "call: edit(path='src/io.py'" in done.stdout and "src/io.py has other content afterwards" in done.stdout
    same = recorded.json("runs", "diff", other, other, "--json")
    assert (
        same["same"]
        and same["left"]["turns"] == 4
        and sorted(same["left"]["files"])
        == [
            "$CWD/made.txt",
            "$CWD/src/io.py",
        ]
    )
