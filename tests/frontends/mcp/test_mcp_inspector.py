"""The official inspector's command line, a client in another language, drives every tool."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.mcp.test_mcp_hosts import edits_a_file
from tests.frontends.server.conftest import serving
from tests.npm_packages import npm_modules
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

__all__ = ["serving"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def inspector() -> Path:
    """Return the folder of the inspector's program, and of the Node it needs."""
    return npm_modules() / ".bin"


class Inspector:
    def __init__(self, programs: Path, project: Project, *target: str, headers: tuple[str, ...] = ()) -> None:
        self.programs = programs
        self.project = project
        self.target = target
        self.headers = headers

    def __call__(self, method: str, *options: str) -> Any:
        environment = {**self.project.environment, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        command = [str(self.programs / "mcp-inspector"), "--cli", *self.target, "--method", method, *options]
        for header in self.headers:
            command += ["--header", header]
        if not self.headers:
            for name, value in self.project.environment.items():
                command += ["-e", f"{name}={value}"]
        done = subprocess.run(
            command, cwd=self.project.cwd, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.stdout.strip(), done.stderr
        return json.loads(done.stdout)

    def call(self, name: str, **arguments: Any) -> Any:
        options = ["--tool-name", name]
        for key, value in arguments.items():
            options += ["--tool-arg", f"{key}={value}"]
        return self("tools/call", *options)


def answer(request: Request) -> Reply:
    said = str(request.body["messages"])
    if "Now finish" in said:
        return Reply(text="Finished.")
    if "Take your time" in said:
        return Reply(hang=True)
    return edits_a_file(request)


def test_the_inspector_drives_every_tool(project: Project, serve: Any, serving: Any, inspector: Path) -> None:
    project.mode = "default"
    serve(answer)
    local = Inspector(inspector, project, *project.program, "mcp")
    names = [tool["name"] for tool in local("tools/list")["tools"]]
    server = serving()
    use = Inspector(inspector, project, f"{server.base}/mcp", headers=(f"Authorization: Bearer {server.token}",))
    assert [tool["name"] for tool in use("tools/list")["tools"]] == names
    assert "general-purpose" in str(use.call("list_agents"))

    handle = use.call("run_agent", agent="general-purpose", task="Write a file", wait_seconds=60)["structuredContent"]
    (waiting,) = handle["waiting"]
    assert use.call("answer", item=waiting["item"], choice="allow")["structuredContent"]["choice"] == "allow"
    result = use.call("get_result", run=handle["runId"], wait_seconds=60)
    assert result["structuredContent"]["record"]["filesWritten"] == ["new.txt"]
    assert "+brand new line" in str(use("resources/read", "--uri", f"retinue://runs/{handle['runId']}/diff"))

    slow = use.call("run_agent", agent="Explore", task="Take your time", wait_seconds=0)["structuredContent"]["runId"]
    assert use.call("list_runs")["structuredContent"]["runs"][0]["id"] == slow
    assert not use.call("steer", run=slow, message="Hurry").get("isError")
    assert not use.call("stop", run=slow).get("isError")
    resumed = use.call("resume", run=slow, prompt="Now finish", wait_seconds=60)
    assert resumed["structuredContent"]["results"][0]["output"] == "Finished."
