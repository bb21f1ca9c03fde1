"""Two runs of one agent are told apart by what they work on, and a memory by where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retinue import Retinue
from tests.program.conftest import Project
from tests.program.model_server import Reply


def start(description: str, prompt: str) -> tuple[str, dict[str, Any]]:
    arguments = {"prompt": prompt, "description": description, "run_in_background": False}
    return "Agent", {**arguments, "subagent_type": "general-purpose"}


def test_runs_list_shows_what_each_agent_works_on(project: Project, serve: Any) -> None:
    calls = [start("find the parser", "CHILD one"), start("fix the tests", "CHILD two")]

    def answer(request: Any) -> Reply:
        child = "CHILD" in json.dumps(request.body["messages"][0])
        return Reply("done", calls=[] if child or request.turn else calls)

    serve(answer)
    assert project.retinue("-p", "go").returncode == 0
    listed = project.retinue("runs", "list").stdout
    assert "general-purpose @general-purpose (find the parser)" in listed
    assert "general-purpose @general-purpose-2 (fix the tests)" in listed
    described = {run["description"] for run in project.json("runs", "list", "--json")["runs"]}
    assert {"find the parser", "fix the tests"} <= described


async def test_the_inbox_says_what_the_agent_that_asks_works_on(project: Project, serve: Any) -> None:
    project.mode = "default"
    serve(lambda request: Reply("done", calls=[] if request.turn else [("write", {"path": "n.txt", "content": "x"})]))
    seen: list[tuple[str, str]] = []

    def approve(item: Any) -> str:
        listed = project.retinue("inbox", "list").stdout
        seen.append((item.description, listed))
        return "deny"

    async with Retinue(project.cwd, environment=project.environment, approve=approve) as retinue:
        await (await retinue.spawn("general-purpose", "Write the notes", description="keep notes")).wait()
        await (await retinue.spawn("general-purpose", "Write more notes")).wait()
    assert [description for description, _ in seen] == ["keep notes", "Write more notes"]
    assert "general-purpose, keep notes (run " in seen[0][1]
    assert "general-purpose, Write more notes (run " in seen[1][1]


def test_a_write_that_reaches_only_the_memory_says_that_it_is_there(project: Project, serve: Any) -> None:
    folder = project.cwd / ".claude/agents"
    folder.mkdir(parents=True)
    (folder / "keeper.md").write_text("---\nname: keeper\ndescription: d\ntools: Read\nmemory: user\n---\nWork.\n")
    server = serve(
        lambda request: Reply("done", calls=[] if request.turn else [("write", {"path": "a.txt", "content": "x"})])
    )
    assert project.retinue("run", "keeper", "go").returncode == 0
    assert not (project.cwd / "a.txt").exists()
    (written,) = Path(project.home).rglob("a.txt")
    said = json.dumps(server.requests[-1].results)
    assert f"This is your memory: {written}. write reaches no file of the workspace." in said
