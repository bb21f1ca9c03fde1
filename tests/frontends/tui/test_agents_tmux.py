"""An agent's file in the person's own editor: the app leaves the terminal to it, agents go on."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontends.tui.tmux import Terminal
from tests.program.conftest import Project, project, serve
from tests.program.model_server import Reply, Request

__all__ = ["project", "serve"]

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.slow,
]

EDITOR = """#!/bin/sh
trap 'echo "the editor heard it"' INT
echo "this is the editor of $1"
while [ ! -e "$(dirname "$0")/go-on" ]; do sleep 0.05; done
printf '%s\\n' '---' 'name: mine' 'description: Edited outside' '---' 'Do it.' > "$1"
exit 0
"""
MINE = "---\nname: mine\ndescription: Mine\n---\nDo it.\n"


@pytest.fixture
def window(project: Project, tmp_path: Path) -> Iterator[Terminal]:
    editor = tmp_path / "edit"
    editor.write_text(EDITOR)
    editor.chmod(0o755)
    agents = project.cwd / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "mine.md").write_text(MINE)
    with Terminal(tmp_path, project.cwd, {**project.environment, "EDITOR": str(editor)}, 90, 30) as found:
        yield found


def busy(request: Request) -> Reply:
    """A run that never gets done. No call is like the last one: a run that repeats itself is ended."""
    time.sleep(0.05)
    return Reply(calls=[("read", {"path": "f0.txt", "limit": request.turn + 1})])


def test_the_editor_has_the_terminal_while_agents_go_on(serve, request, project, tmp_path):
    server = serve(busy)
    window: Terminal = request.getfixturevalue("window")
    window.run(f"{sys.executable} -m retinue")
    window.see("/help")
    window.run("work")
    window.see("read")
    window.press("F3")
    window.see("Agent types")
    window.press("Enter")
    window.see("general-purpose", "mine")
    window.press_until("Down", r"─\s+Mine\n")
    window.press("e")
    window.see("this is the editor of", gone=("Agent types",))
    before = len(server.requests)
    deadline = time.monotonic() + 30
    while len(server.requests) < before + 5:
        assert time.monotonic() < deadline, "agents stand still while the editor is open"
        time.sleep(0.05)
    window.press("C-c")
    screen = window.see("the editor heard it")
    assert "Agent types" not in screen, "nothing is drawn over the editor"
    (tmp_path / "go-on").touch()
    window.see("Agent types", "Saved: .retinue/agents/mine.md", "Edited outside")
    assert "Edited outside" in (project.cwd / ".retinue" / "agents" / "mine.md").read_text()
    window.press("Escape")
    window.see("Create new agent")
