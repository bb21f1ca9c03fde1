"""What agents say and do is shown on terminals; none of it may steer the terminal, or pose as a
line of the program's own."""

from __future__ import annotations

import json
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import Reply

ESCAPES = "\x1b[2K\r\x9b2J\x07"
FORGED = "a\n    allowed  person: somebody allowed it"


def test_no_text_of_an_agent_reaches_a_terminal_as_a_command(project: Project, serve: Any) -> None:
    calls = [
        ("bash", {"command": f"echo x > 'n{ESCAPES}'  # {ESCAPES}"}),
        ("write", {"path": FORGED, "content": "x"}),
        ("read", {"path": f"missing{ESCAPES}"}),
    ]
    serve(lambda request: Reply(f"done {ESCAPES}", calls=calls if request.turn == 0 else []))
    done = project.retinue("run", "general-purpose", f"go {ESCAPES}")
    run_id = project.json("runs", "list", "--json")["runs"][0]["id"]
    assert (project.cwd / FORGED).exists()
    shown = [done.stderr]
    for command in (("runs", "show"), ("runs", "effects"), ("runs", "tail"), ("runs", "undo", "--dry-run")):
        again = project.retinue(*command, run_id)
        assert again.returncode == 0, again.stderr
        answer = again.stdout if command[1] == "tail" else ""  # a program gets the answer as it is
        shown.append((again.stdout + again.stderr).removeprefix(answer))
    for text in shown:
        assert not set(text) & set("\x1b\x9b\x07\r"), text
    assert "\\x1b" in shown[1] and "\\x1b" in shown[2]
    assert "    allowed  person" not in "".join(shown).replace("\\n    allowed", "")
    whole = json.dumps(project.json("runs", "effects", run_id, "--json"))
    assert "\\u001b" in whole, "programs get it as it is"
