"""Agents of agents in worktrees, after a kill: each can be taken up alone, and nothing is removed under it."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_approvals import until
from tests.program.test_worktree import RUN, repository, script, state  # noqa: F401 - a fixture

BOSS = "---\ndescription: boss\ntools: Agent, bash, read, write\n---\nYou delegate.\n"


def cut_off_below(project: Project, serve, isolation: str):
    """A boss in a worktree is killed while an agent of its own is at work. Gives the two runs."""
    agents = project.home / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "boss.md").write_text(BOSS)
    reached = threading.Event()

    def answer(request: Request) -> Reply:
        turn = request.turn
        if "child task" in json.dumps(request.body["messages"][0]):
            if turn == 0:
                return Reply("", [("bash", {"command": "echo 1 > one.txt; git add -A; git commit -qm one"})])
            if turn == 1 and not reached.is_set():
                reached.set()
                return Reply("wait", hang=True)
            return Reply("", [("bash", {"command": "echo 2 > two.txt"})]) if turn == 1 else Reply("child done")
        call = {"description": "d", "subagent_type": "general-purpose", "run_in_background": False}
        call |= {"prompt": "child task", "isolation": isolation}
        return Reply("", [("Agent", call)]) if turn == 0 else Reply("ok")

    serve(answer)
    process = project.start("run", "boss", "delegate", *RUN)
    assert reached.wait(60)
    process.kill()
    process.communicate()
    rows = project.json("runs", "list", "--json", "--limit", "0")["runs"]
    return [next(row["id"] for row in rows if row["agent"] == name) for name in ("boss", "general-purpose")]


@pytest.mark.parametrize("isolation", ["worktree", "off"])
def test_an_agent_of_a_killed_isolated_agent_can_be_taken_up_alone(project, repository, serve, isolation):  # noqa: F811
    boss, child = cut_off_below(project, serve, isolation)
    done = project.retinue("runs", "resume", child)
    assert done.returncode == 0 and "child done" in done.stdout, done.stderr
    again = project.retinue("runs", "resume", boss)
    assert again.returncode == 0, again.stderr
    assert project.json("worktrees", "list", "--json") == {"worktrees": [], "unknown": []}
    tip = f"retinue-agent-{child if isolation == 'worktree' else boss}"
    assert {"one.txt", "two.txt"} <= set(repository.git("ls-tree", "-r", "--name-only", tip).split())
    assert [path.name for path in (project.home / ".retinue" / "projects").iterdir()] == [state(project).name]


def test_an_agent_whose_folder_went_with_the_worktree_above_says_whom_to_take_up(project, repository, serve):  # noqa: F811
    boss, child = cut_off_below(project, serve, "worktree")
    cleaned = project.json("worktrees", "clean", "--json")["cleaned"]
    assert [each["run"] for each in cleaned if each["kept"] is None] == [child, boss]
    done = project.retinue("runs", "resume", child)
    assert done.returncode == 1 and f"retinue runs resume {boss}" in done.stderr, done.stderr
    assert project.retinue("runs", "resume", boss).returncode == 0


def test_a_worktree_in_which_a_run_was_taken_up_is_not_cleaned(project, repository, serve):  # noqa: F811
    boss, child = cut_off_below(project, serve, "off")
    reached, over = threading.Event(), threading.Event()

    def answer(request: Request) -> Reply:
        if request.turn == 1:
            reached.set()
            over.wait(60)
            return Reply("", [("bash", {"command": "echo 2 > two.txt"})])
        return Reply("child done")

    serve(answer)
    process = project.start("runs", "resume", child)
    assert reached.wait(60)
    assert project.json("worktrees", "clean", "--json")["cleaned"] == []
    assert [each["status"] for each in project.json("worktrees", "list", "--json")["worktrees"]] == ["working"]
    over.set()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    (cleaned,) = project.json("worktrees", "clean", "--json")["cleaned"]
    assert (cleaned["run"], cleaned["kept"]) == (boss, None)
    assert repository.git("show", f"retinue-agent-{boss}:two.txt") == "2"


def running_in(folder: Path) -> set[str]:
    """The processes that work in a folder."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if path.readlink() == folder:
                found.add(path.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_clean_ends_what_a_dead_agent_left_running_before_it_saves(project, repository, serve):  # noqa: F811
    """Where no namespace ends it with its agent: nothing may write into a folder that goes."""
    settings = project.home / ".retinue"
    settings.mkdir()
    (settings / "settings.json").write_text(json.dumps({"sandbox": {"mode": "off"}, "worktree": {"shell": "checked"}}))
    serve(script([("bash", {"command": "echo one > one.txt && sleep 61"})], "never"))
    process = project.start("run", "general-purpose", "t", *RUN)
    until(lambda: list(settings.glob("projects/*/worktrees/*/one.txt")))
    process.kill()
    process.communicate()
    (left,) = project.json("worktrees", "list", "--json")["worktrees"]
    assert running_in(Path(left["path"]))
    done = project.json("worktrees", "clean", "--json")
    assert done["cleaned"][0]["kept"] is None and "sleep 61" in done["ended"][0]
    assert not running_in(Path(left["path"]))
    assert repository.git("show", f"{done['cleaned'][0]['branch']}:one.txt") == "one"
