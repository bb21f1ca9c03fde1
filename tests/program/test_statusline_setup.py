"""The built-in agent statusline-setup: what it is told, and what it can do with a person and without one."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from retinue import Retinue
from retinue.core.permission import InboxItem
from retinue.guard.sandbox import kernel
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

RETINUE = f"{shlex.quote(sys.executable)} -m retinue"
TEMPLATE = "{model}[ on {branch}]"
STEPS = (
    f"{RETINUE} settings get statusLine.template",
    f"{RETINUE} settings set --user statusLine.template '{TEMPLATE}'",
)


def sets_up(request: Request) -> Reply:
    """Does what its prompt says: looks first, sets the template, and reports."""
    if request.turn < len(STEPS):
        return Reply(calls=[("bash", {"command": STEPS[request.turn]})])
    return Reply("The line shows the model and the branch.")


def template(project: Project) -> Any:
    path = project.home / ".retinue" / "settings.json"
    if not path.exists():
        return None
    settings = json.loads(path.read_text())
    return settings.get("statusLine.template") or settings.get("statusLine", {}).get("template")


async def test_it_sets_the_line_when_a_person_approves(project: Project, serve: Any) -> None:
    project.mode = "default"
    server = serve(sets_up)
    asked: list[str] = []

    def approve(item: InboxItem) -> bool:
        asked.append(json.dumps(dict(item.payload)))
        return True

    async with Retinue(project.cwd, environment=project.environment, approve=approve) as retinue:
        outcome = await (await retinue.spawn("statusline-setup", "Show the model and the branch.")).wait()
    assert outcome.text == "The line shows the model and the branch."
    assert [tool["name"] for tool in server.requests[0].body["tools"]] == ["read", "bash", "bash_output"]
    assert any("settings set --user" in each for each in asked)
    assert template(project) == TEMPLATE


@pytest.mark.skipif(kernel.why_not() is not None, reason=str(kernel.why_not()))
def test_without_a_person_the_settings_stay_and_it_is_told_to_hand_over_the_command(
    project: Project, serve: Any
) -> None:
    server = serve(sets_up)
    assert project.retinue("run", "statusline-setup", "Show the model and the branch.").returncode == 0
    assert "Read-only file system" in json.dumps(server.requests[-1].results[-1])
    assert template(project) is None
    assert "answer with the command for the user to run" in json.dumps(server.requests[0].body["system"])
