"""On a worker everything of a sender is foreign: what it brings, and what it approves."""

import json

import pytest

from retinue.guard.sandbox import kernel
from tests.program.cluster_scene import result
from tests.program.model_server import Reply

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow
needs_sandbox = pytest.mark.skipif(kernel.why_not() is not None, reason=str(kernel.why_not()))

AGENT = """---
description: Brings programs
mcpServers:
  own:
    command: sh
    args: ["-c", "echo x >> $HOME/server-ran"]
hooks:
  PostToolUse:
    - hooks:
        - type: command
          command: echo x >> $HOME/hook-ran
extensions: [./tool.py]
session_dir: ~/sessions
---
You work.
"""
TOOL = """
from pathlib import Path
from retinue import tool

Path.home().joinpath("extension-ran").write_text("x")

@tool
def greet() -> str:
    "Say hello."
    return "hello"
"""
MARKS = {"servers": "server-ran", "hooks": "hook-ran", "extensions": "extension-ran"}
KEY, NOTE = "PRIVATE-KEY-OF-THE-OPERATOR", "NOTES-OF-THE-OPERATOR"


def one_command(command):
    def answer(request):
        return Reply("", [("bash", {"command": command})]) if request.turn == 0 else Reply("done")

    return answer


def run_agent(scene, name):
    return result(scene.project.start("run", name, "Work", "--on", "cluster", "--json", env=scene.variables))


def marks(worker):
    return {path.name for path in worker.home.iterdir()}


@pytest.mark.parametrize("home", ["user", "project"])
@pytest.mark.parametrize("allow", [(), ("servers",), ("hooks", "servers")])
def test_an_agent_of_the_sender_brings_only_what_the_operator_allows(scene, serve, home, allow):
    serve(one_command("true"))
    base = scene.project.home if home == "user" else scene.project.cwd
    file = base / ".retinue" / "agents" / "mine.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(AGENT)
    (scene.project.cwd / "tool.py").write_text(TOOL)
    said = scene.project.retinue("trust", "add", env=scene.variables)
    assert said.returncode == 0, said.stdout + said.stderr
    worker = scene.worker(*(("--allow", ",".join(allow)) if allow else ()))
    scene.ready(1)
    run_agent(scene, "mine")
    expected = {MARKS[right] for right in allow}
    assert marks(worker) & {*MARKS.values(), "sessions"} == expected
    warnings = "\n".join(scene.warnings(scene.only_run()["id"]))
    for right, what in (("servers", "MCP server own"), ("hooks", "hook PostToolUse")):
        if right not in allow:
            assert what in warnings
            assert f"retinue worker --allow {right}" in warnings
    assert 'extension "./tool.py" is not loaded' in warnings


@needs_sandbox
@pytest.mark.parametrize("clearance", ["person", "mode", "rule"])
def test_no_approval_of_a_sender_shows_the_operators_home(scene, serve, clearance):
    home = scene.folder / "worker-0"
    command = f"cat ~/.ssh/id_rsa ~/notes.txt {home}/.ssh/id_rsa {home}/notes.txt; ls -a {home} {home}/.retinue"
    if clearance == "person":
        # Anything but reading is asked about, whatever the rules and the mode say.
        command += f"; echo x > {home}/new"
    server = serve(one_command(command))
    scene.project.mode = "bypassPermissions" if clearance == "mode" else "default"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(KEY)
    (home / "notes.txt").write_text(NOTE)
    if clearance == "rule":
        settings = scene.project.cwd / ".retinue" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"permissions": {"allow": ["Bash"]}}))
        assert scene.project.retinue("trust", "add", env=scene.variables).returncode == 0
    scene.worker("--allow", "permissions")
    scene.ready(1)
    process = scene.run("Look around", "--json")
    if clearance == "person":
        answer_everything(scene, process)
    result(process)
    shown = json.dumps([request.body["messages"] for request in server.requests])
    assert "tool_result" in shown and "settings.json" not in shown
    assert KEY not in shown and NOTE not in shown
    assert not (home / "new").exists()


@needs_sandbox
def test_an_approved_command_still_works_in_its_worktree(scene, serve):
    serve(one_command("cat README.md && git add -A && git status --short && echo made > made.txt"))
    scene.worker()
    scene.ready(1)
    found = result(scene.run("Work", "--json"))
    assert scene.file(found["branch"], "made.txt") == "made\n"


@pytest.mark.parametrize("allow", ["", "shell"])
def test_a_worker_without_a_sandbox_has_a_shell_only_where_its_operator_allows_it(scene, serve, allow):
    server = serve(one_command("touch made.txt"))
    scene.worker(*(("--allow", allow) if allow else ()), variables={"RETINUE_SANDBOX_MODE": "off"})
    scene.ready(1)
    found = result(scene.run("Work", "--json"))
    assert ("branch" in found) == bool(allow)
    assert ("bash" in [tool["name"] for tool in server.requests[0].body["tools"]]) == bool(allow)
    assert any("bash was withheld" in note for note in found["notes"]) == (not allow)


@pytest.mark.parametrize("allow", ["servers,hooks,permissions,shell", "extensions"])
def test_code_of_a_plugin_in_the_project_is_imported_where_the_operator_allows_it(scene, serve, allow):
    serve(one_command("true"))
    file = scene.project.cwd / ".retinue" / "plugins" / "greeter.py"
    file.parent.mkdir(parents=True)
    file.write_text(TOOL)
    said = scene.project.retinue("trust", "add", env=scene.variables)
    assert said.returncode == 0, said.stdout + said.stderr
    worker = scene.worker("--allow", allow)
    scene.ready(1)
    result(scene.run("Work", "--json"))
    assert ("extension-ran" in marks(worker)) == (allow == "extensions")


def test_a_project_does_not_change_the_sandbox_of_a_worker(scene, serve):
    server = serve(one_command("true"))
    settings = scene.project.cwd / ".retinue" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"sandbox": {"mode": "off"}}))
    scene.worker("--allow", "shell,permissions")
    scene.ready(1)
    result(scene.run("Work", "--json"))
    warnings = "\n".join(scene.warnings(scene.only_run()["id"]))
    assert "sandbox.mode has no effect" in warnings
    assert "bash" in [tool["name"] for tool in server.requests[0].body["tools"]]


def answer_everything(scene, process):
    def is_over():
        for item in scene.json("inbox", "list", "--json")["items"]:
            if item["state"] == "waiting":
                scene.project.retinue("inbox", "answer", item["id"], "allow", env=scene.variables)
        return process.poll() is not None

    scene.until(is_over, 120)
