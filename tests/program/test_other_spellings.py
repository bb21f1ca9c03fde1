"""The real program with a model that calls tools as Claude Code names them, up to commands in the background."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

STEPS: list[tuple[str, dict[str, Any]]] = [
    ("Write", {"file_path": "note.txt", "content": "one two\n"}),
    ("Edit", {"file_path": "note.txt", "old_string": "two", "new_string": "TWO"}),
    ("Bash", {"command": "echo $$ > pid; echo up; sleep 1000", "run_in_background": True}),
    ("BashOutput", {"bash_id": "shell-1"}),
    ("Read", {"file_path": "note.txt", "offset": "1"}),
]


def test_claude_codes_calls_work_and_a_background_command_ends_with_its_run(project: Project, serve: Any) -> None:
    said: list[str] = []

    def answer(request: Request) -> Reply:
        if request.turn:
            said.append(json.dumps(request.results[-1]["content"]))
        return Reply("", [STEPS[request.turn]]) if request.turn < len(STEPS) else Reply("done")

    serve(answer)
    done = project.retinue("-p", "go", "--output-format", "json")
    assert json.loads(done.stdout)["result"] == "done", done.stderr
    (run,) = project.json("runs", "list", "--json")["runs"]
    notes = project.json("runs", "show", run["id"], "--json")["outcome"]["notes"]
    assert [note for note in notes if "when the run ended, and stopped: shell-1: echo $$ > pid" in note]
    assert "Created note.txt (1 line, 8B)" in said[0] and "Made the edit in note.txt" in said[1]
    assert "shell-1 still running" in said[2] and "up" in said[2] + said[3]
    assert "one TWO" in said[4]
    pid = int((project.cwd / "pid").read_text())
    assert not _alive(pid), "nothing outlives its run"


def test_bash_names_run_in_background_only_where_its_output_can_be_read(project: Project, serve: Any) -> None:
    """Gemini's validated calls hold only what a schema names."""
    server = serve(lambda request: Reply("done"))
    assert project.retinue("-p", "go").returncode == 0
    assert project.retinue("run", "Explore", "go").returncode == 0
    offered = []
    for request in server.requests:
        tools = {tool["name"]: tool["input_schema"]["properties"] for tool in request.body["tools"]}
        offered.append(("run_in_background" in tools["bash"], "bash_output" in tools))
    assert offered == [(True, True), (False, False)]


def test_a_patch_and_a_terminal_command_work_for_a_model_that_is_shown_neither(project: Project, serve: Any) -> None:
    (project.cwd / "a.txt").write_text("one\ntwo\n")
    (project.cwd / "gone.txt").write_text("x\n")
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+TWO\n"
        "*** Add File: b.txt\n+new\n*** Delete File: gone.txt\n*** End Patch"
    )
    steps = [("read", {"path": "a.txt"}), ("read", {"path": "gone.txt"}), ("apply_patch", {"input": patch})]
    steps.append(("run_terminal_cmd", {"command": "echo from cursor", "is_background": False}))
    said: list[str] = []

    def answer(request: Request) -> Reply:
        if request.turn:
            said.append(json.dumps(request.results[-1]["content"]))
        assert "apply_patch" not in {tool["name"] for tool in request.body["tools"]}
        return Reply("", [steps[request.turn]]) if request.turn < len(steps) else Reply("done")

    serve(answer)
    done = project.retinue("-p", "go", "--output-format", "json")
    assert json.loads(done.stdout)["result"] == "done", done.stderr
    assert (project.cwd / "a.txt").read_text() == "one\nTWO\n"
    assert (project.cwd / "b.txt").read_text() == "new\n"
    assert not (project.cwd / "gone.txt").exists()
    assert "from cursor" in said[-1]


def test_an_agent_that_may_not_edit_cannot_do_so_by_a_patch(project: Project, serve: Any) -> None:
    (project.cwd / "a.txt").write_text("one\n")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"
    steps = [("read", {"path": "a.txt"}), ("apply_patch", {"input": patch})]
    server = serve(lambda request: Reply("", [steps[request.turn]]) if request.turn < 2 else Reply("done"))
    target = project.cwd / ".claude/agents/reader.md"
    target.parent.mkdir(parents=True)
    target.write_text("---\nname: reader\ndescription: d\ntools: Read, Write\n---\nRead.\n")
    assert project.retinue("run", "reader", "go").returncode == 0
    assert (project.cwd / "a.txt").read_text() == "one\n"
    assert server.requests[-1].results[-1]["is_error"]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_a_parent_reads_the_transcript_of_its_agent_and_twins_of_twins_repeat_nothing(
    project: Project, serve: Any
) -> None:
    prompts: dict[str, str] = {}
    said: list[str] = []

    def answer(request: Request) -> Reply:
        task = json.dumps(request.body["messages"][0])
        level = "third" if "THIRD" in task else "second" if "SECOND" in task else "main"
        prompts[level] = request.body["system"][0]["text"]
        if level == "third":
            return Reply("deep report")
        if level == "second" and request.turn == 0:
            return Reply("", [("Task", {"prompt": "THIRD", "description": "d", "run_in_background": False})])
        if level == "second":
            return Reply("report")
        if request.turn == 0:
            return Reply("", [("Task", {"prompt": "SECOND", "description": "d", "run_in_background": False})])
        said.append(json.dumps(request.results[-1]["content"]))
        if request.turn == 1:
            path = said[-1].split("Output file: ")[1].split("\\n")[0]
            return Reply("", [("Read", {"file_path": path})])
        return Reply("done")

    serve(answer)
    done = project.retinue("-p", "go", "--output-format", "json")
    assert json.loads(done.stdout)["result"] == "done", done.stderr
    assert "Type: general-purpose" in said[0]
    assert "outside the workspace" not in said[1] and "SECOND" in said[1]
    assert prompts["second"].startswith(prompts["main"])
    assert prompts["third"].startswith(prompts["main"])
    for text in ("<sub_agent_context>", "# Environment", "<agent_instructions>"):
        assert prompts["third"].count(text) == 1, text


def test_a_model_that_writes_patches_is_not_shown_edit_as_well_and_stays_within_the_budget(
    project: Project, serve: Any
) -> None:
    server = serve(lambda request: Reply("done"))
    assert project.retinue("-p", "go", env={"RETINUE_MODEL": "anthropic/gpt-6.1-sol"}).returncode == 0
    body = server.requests[0].body
    names = [tool["name"] for tool in body["tools"]]
    assert "apply_patch" in names and "write" in names and "edit" not in names
    assert len(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()) / 4 <= 3_000
