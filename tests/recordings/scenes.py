"""A project with an agent, a run of it on a model server, and the tests that are drafted from that run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply, Request

FIXER = "---\nname: fixer\ndescription: Fixes things.\ntools: read, edit, bash\n---\nYou fix things.\n"


def fix(request: Request) -> Reply:
    """Read a file, change it, make another through the shell, and answer."""
    replies = (
        Reply("Let me look.", [("read", {"path": "src/io.py"})]),
        Reply("", [("edit", {"path": "src/io.py", "edits": [{"oldText": "pass", "newText": "return 1"}]})]),
        Reply("", [("bash", {"command": "echo made > made.txt"})]),
    )
    if request.turn < len(replies):
        return replies[request.turn]
    return Reply("src/io.py line 1: the error is checked now.")


def make_project(project: Project, files: dict[str, str] | None = None) -> None:
    """Put an agent and a file to fix into the project, and commit them."""
    everything = {"src/io.py": "def f(): pass\n", ".retinue/agents/fixer.md": FIXER, **(files or {})}
    for name, text in everything.items():
        path = project.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(project.cwd, "init", "-q")
    git(project.cwd, "add", ".")
    git(project.cwd, "-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "-qm", "first")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=folder, check=True, capture_output=True, text=True).stdout


def run_fixer(project: Project, server: ModelServer) -> str:
    """Run the agent on a model server, put its files back, and return the id of the run."""
    project.server = server
    done = project.retinue("run", "fixer", "Fix src/io.py", "--permission-mode", "bypassPermissions", "--json")
    assert done.returncode == 0, done.stderr
    git(project.cwd, "checkout", "-q", ".")
    git(project.cwd, "clean", "-fdq", "-e", "*.jsonl")
    project.server = None
    listed = project.json("runs", "list", "--json")
    return str(next(row["id"] for row in listed["runs"] if row["agent"] == "fixer"))
