"""The real program with a model that calls tools as Claude Code names them, up to commands in the background."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.runs.conftest import Project
from tests.runs.model_server import Reply, Request

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
    assert "Created note.txt" in said[0] and "Made the edit in note.txt" in said[1]
    assert "shell-1 still running" in said[2] and "up" in said[2] + said[3]
    assert "one TWO" in said[4]
    pid = int((project.cwd / "pid").read_text())
    assert not _alive(pid), "nothing outlives its run"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
