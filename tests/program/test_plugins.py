"""Plugins through the real program: consent, tools, hooks, servers, agents, and what is broken."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

TOP = Path(__file__).parents[2]
TOOL = """
from retinue import tool

@tool(effects=["read"])
def forecast(city: str) -> str:
    "The weather in a city."
    return f"{city}: sunny"
"""
RAW_SERVER = Path(__file__).parents[1] / "capabilities" / "mcp" / "raw_server.py"


def once(name: str, arguments: dict[str, Any]) -> Any:
    """A model that calls one tool if it has it, and then says what it got."""

    def answer(request: Request) -> Reply:
        names = [tool["name"] for tool in request.body.get("tools", [])]
        if request.turn == 0 and name in names:
            return Reply("", [(name, arguments)])
        return Reply(f"got: {json.dumps(request.results[-1]['content'])}" if request.turn else "it is not there")

    return answer


def prompt(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.retinue("-p", "do it", "--output-format", "json", *arguments)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def brought(project: Project, path: str, content: str, *, user: bool = False) -> Path:
    base = project.home / ".retinue" / "plugins" if user else project.cwd / ".retinue" / "plugins"
    file = base / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def test_a_projects_tool_needs_consent_to_exactly_its_content(project: Project, serve: Any) -> None:
    server = serve(once("forecast", {"city": "Rome"}))
    file = brought(project, "weather/tools.py", TOOL)
    assert prompt(project)["result"] == "it is not there"
    listed = project.json("trust", "list", "--json")["files"]
    assert [(Path(each["path"]).name, each["brings"]) for each in listed] == [("weather", ["Python code: tools"])]
    assert project.retinue("trust", "add", str(file.parent)).returncode == 0
    assert "Rome: sunny" in prompt(project)["result"]
    file.write_text(TOOL.replace("sunny", "changed"))
    assert prompt(project)["result"] == "it is not there"
    assert "changed" in prompt(project, "--trust")["result"]
    assert server.requests


@pytest.mark.parametrize(
    ("deny", "got"),
    [("Read(secret.txt)", False), ("Read(*.txt)", False), ("Read", False), ("Read(other.txt)", True), ("Edit", True)],
)
def test_rules_hold_for_a_tool_of_a_plugin_by_what_it_declares(
    project: Project, serve: Any, deny: str, got: bool
) -> None:
    (project.cwd / "secret.txt").write_text("the treasure")
    code = TOOL.replace('f"{city}: sunny"', "open(city).read()")
    brought(project, "weather/tools.py", code, user=True)
    settings = {"permissions": {"deny": [deny], "allow": ["forecast"]}}
    (project.home / ".retinue" / "settings.json").write_text(json.dumps(settings))
    serve(once("forecast", {"city": "secret.txt"}))
    assert ("the treasure" in prompt(project)["result"]) == got


def test_the_run_says_which_plugins_have_no_effect_or_are_broken(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    brought(project, "weather/tools.py", TOOL)
    brought(project, "bad/plugin.json", "{", user=True)
    brought(project, "raises/tools.py", "raise ValueError('at import')", user=True)
    brought(project, "good/tools.py", TOOL.replace("forecast", "other"), user=True)
    document = project.json("run", "general-purpose", "x", "--json")
    shown = project.retinue("runs", "show", document["details"]["runId"]).stdout
    assert "Plugin 'weather' runs without its tools: it is not trusted" in shown
    assert "plugins/bad is left out: plugin.json is not JSON" in shown
    assert "Plugin 'raises': tools failed on import: ValueError: at import (tools.py, line 1)" in shown
    assert "'good'" not in shown
    assert project.retinue("plugins", "check").returncode == 1
    assert project.retinue("plugins", "check", "good").returncode == 0


def test_listings_import_nothing(project: Project) -> None:
    mark = project.cwd / "imported"
    brought(project, "kit/tools.py", f"open({str(mark)!r}, 'w').close()\n{TOOL}", user=True)
    brought(project, "kit/agents/helper.md", "---\nname: helper\ndescription: Helps.\n---\nHelp.", user=True)
    agents = project.json("agents", "list", "--json")["agents"]
    assert [each["source"] for each in agents if each["name"] == "helper"] == ["plugin"]
    plugins = project.json("plugins", "list", "--json")["plugins"]
    assert [(each["name"], each["trusted"], each["agents"], each["tools"]) for each in plugins] == [
        ("kit", True, ["helper"], ["tools"])
    ]
    assert project.retinue("--help").returncode == 0
    assert project.retinue("trust").returncode == 0
    assert not mark.exists()
    checked = project.json("plugins", "check", "--json")["plugins"][0]
    assert [tool["name"] for tool in checked["tools"]] == ["forecast"]
    assert mark.exists()


def test_the_tool_in_ten_lines_of_the_manual_works(project: Project, serve: Any) -> None:
    block = re.search(r"```python[^\n]*\n(.*?)```", (TOP / "docs" / "plugins.md").read_text(), re.DOTALL)
    assert block is not None
    code = block[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    brought(project, "clock.py", code, user=True)
    serve(once("time_in", {"zone": "UTC"}))
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", prompt(project)["result"])


def test_the_example_works_as_it_is(project: Project, serve: Any) -> None:
    shutil.copytree(TOP / "examples" / "plugin", project.home / ".retinue" / "plugins" / "workshop")
    serve(once("word_count", {"text": "one two"}))
    document = project.json("run", "workshop:editor", "x", "--json")
    assert 'words\\": 2' in document["content"][0]["text"]
    serve(once("write", {"path": "generated/a.txt", "content": "x"}))
    said = prompt(project)["result"]
    assert "change their source instead" in said
    assert not (project.cwd / "generated").exists()
    serve(once("write", {"path": "b.txt", "content": "x"}))
    prompt(project)
    assert (project.cwd / "b.txt").read_text() == "x"


def test_hooks_of_a_projects_plugin_need_consent_and_find_their_folder(project: Project, serve: Any) -> None:
    serve(once("read", {"path": "f0.txt"}))
    handler = {"type": "command", "command": 'cat > /dev/null; sh "$CLAUDE_PLUGIN_ROOT/mark.sh"'}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "Read", "hooks": [handler]}]}}
    brought(project, "guard/hooks/hooks.json", json.dumps(hooks))
    brought(project, "guard/mark.sh", f"touch {project.cwd}/marked")
    prompt(project)
    assert not (project.cwd / "marked").exists()
    project.retinue("trust", "add")
    prompt(project)
    assert (project.cwd / "marked").exists()


def test_a_server_of_a_plugin_is_one_of_the_project(project: Project, serve: Any) -> None:
    server = brought(project, "kit/server.py", (RAW_SERVER.parent / "sdk_server.py").read_text(), user=True)
    table = {"mcpServers": {"notes": {"command": sys.executable, "args": ["${CLAUDE_PLUGIN_ROOT}/server.py"]}}}
    brought(project, "kit/.mcp.json", json.dumps(table), user=True)
    listed = project.json("servers", "list", "--json")["servers"]
    assert [(each["name"], each["trusted"]) for each in listed] == [("notes", True)]
    assert str(server) in listed[0]["target"]


@pytest.mark.parametrize(
    ("head", "there"),
    [
        ("extensions: false", False),
        ("isolated: true", False),
        ("exclude_extensions: WEATHER", False),
        ("extensions: [Weather]", True),
        ("tools: read, ext:weather/forecast", True),
        ("tools: read, ext:other", False),
        ("disallowed_tools: forecast", False),
        ("tools: read", True),
    ],
)
def test_an_agents_file_scopes_extensions_in_a_real_run(project: Project, serve: Any, head: str, there: bool) -> None:
    server = serve(lambda request: Reply("done"))
    brought(project, "weather/tools.py", TOOL, user=True)
    folder = project.cwd / ".pi" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text(f"---\ndescription: Scouts.\n{head}\n---\nScout.")
    project.json("run", "scout", "x", "--json")
    names = [tool["name"] for tool in server.requests[0].body["tools"]]
    assert ("forecast" in names) == there


def test_an_extension_by_path_needs_consent_when_a_projects_agent_names_it(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    (project.cwd / "own.py").write_text(TOOL)
    folder = project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\nname: scout\ndescription: S.\nextensions: [./own.py]\n---\nScout.")
    first = project.json("run", "scout", "x", "--json")
    assert 'extension-error:extension \\"./own.py\\" is not loaded' in json.dumps(
        project.json("runs", "show", first["details"]["runId"], "--json")
    )
    assert project.retinue("trust", "add").returncode == 0
    project.json("run", "scout", "x", "--json")
    offered = [[tool["name"] for tool in request.body["tools"]] for request in server.requests]
    assert ["forecast" in names for names in offered] == [False, True]


def test_which_tools_of_plugins_a_child_has_is_the_matter_of_its_own_file(project: Project, serve: Any) -> None:
    brought(project, "weather/tools.py", TOOL, user=True)
    agents = {
        "boss": {"description": "B", "prompt": "You are the boss.", "tools": ["Agent", "Read"]},
        "worker": {"description": "W", "prompt": "You work.", "tools": ["Read", "forecast"]},
    }

    def answer(request: Request) -> Reply:
        names = [tool["name"] for tool in request.body.get("tools", [])]
        if "Agent" in names and request.turn == 0:
            call = {"prompt": "go", "description": "d", "subagent_type": "worker", "run_in_background": False}
            return Reply("", [("Agent", call)])
        return Reply(f"tools: {sorted(names)}")

    server = serve(answer)
    prompt(project, "--agent", "boss", "--agents", json.dumps(agents))
    (child,) = [request for request in server.requests if "You work." in json.dumps(request.body["system"])]
    names = {tool["name"] for tool in child.body["tools"]}
    assert {"read", "forecast"} <= names


def test_lint_says_what_a_projects_plugin_may_not_bring(project: Project) -> None:
    text = "---\nname: helper\ndescription: Helps.\npermissionMode: bypassPermissions\n---\nHelp."
    file = brought(project, "kit/agents/helper.md", text)
    brought(project, "own/agents/other.md", text, user=True)
    found = project.json("agents", "lint", "--json")
    notes = [(each["file"], each["line"]) for each in found["findings"] if each["code"] == "not-in-plugin"]
    assert notes == [(str(file), 4)]


def test_a_call_out_of_scope_is_answered_with_a_text_and_stays_out_after_a_resume(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply("", [("forecast", {"city": "Rome"})])
        return Reply(f"got: {request.results[-1]['content']}")

    server = serve(answer)
    brought(project, "weather/tools.py", TOOL, user=True)
    folder = project.cwd / ".pi" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\ndescription: Scouts.\nextensions: false\n---\nScout.")
    document = project.json("run", "scout", "x", "--json")
    assert "There is no tool named 'forecast'" in document["content"][0]["text"]
    (folder / "scout.md").write_text("---\ndescription: Scouts.\n---\nScout.")
    project.json("runs", "resume", document["details"]["runId"], "again", "--json")
    assert all("forecast" not in [tool["name"] for tool in each.body["tools"]] for each in server.requests)


def test_a_plugin_that_hangs_on_import_keeps_no_run_from_starting_or_ending(project: Project, serve: Any) -> None:
    serve(once("forecast", {"city": "Rome"}))
    brought(project, "hangs/tools.py", "import threading\nthreading.Event().wait()", user=True)
    brought(project, "weather/tools.py", TOOL, user=True)
    done = project.retinue("-p", "x", "--output-format", "json")
    assert "Rome: sunny" in json.loads(done.stdout)["result"]
    (run,) = project.json("runs", "list", "--json")["runs"]
    assert "did not finish its import within 10 s" in project.retinue("runs", "show", run["id"]).stdout


def test_the_doctor_names_broken_plugins_and_those_without_effect(project: Project) -> None:
    brought(project, "bad/plugin.json", "[]", user=True)
    brought(project, "weather/tools.py", TOOL)
    found = json.loads(project.retinue("doctor", "plugins", "--json").stdout)["findings"]
    assert [(each["category"], each["status"], each["name"]) for each in found] == [
        ("plugins", "warning", "plugins"),
        ("plugins", "info", "weather"),
    ]


def test_a_caller_that_wants_an_agent_isolated_gets_built_ins_only(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        names = [tool["name"] for tool in request.body.get("tools", [])]
        if "Agent" in names and request.turn == 0:
            call = {"prompt": "go", "description": "d", "subagent_type": "general-purpose", "isolated": True}
            return Reply("", [("Agent", {**call, "run_in_background": False})])
        return Reply("done")

    server = serve(answer)
    brought(project, "weather/tools.py", TOOL, user=True)
    prompt(project)
    first, child, *_ = [{tool["name"] for tool in request.body["tools"]} for request in server.requests]
    assert "forecast" in first
    assert {"read", "bash", "edit", "write", "grep", "find", "ls"} <= child
    assert child.isdisjoint({"forecast", "Agent", "todo", "ask_parent"})


def test_odd_names_of_folders_break_no_listing(project: Project) -> None:
    base = project.home / ".retinue" / "plugins"
    base.mkdir(parents=True)
    for name in (b"\xff\xfe", b"a\x1b[2Jb", "ä ö".encode(), b"new\nline"):
        (Path(bytes(base).decode()) / name.decode("utf-8", "surrogateescape")).mkdir()
    for arguments in (("plugins", "list"), ("plugins", "list", "--json"), ("plugins", "check"), ("doctor", "plugins")):
        done = project.retinue(*arguments)
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stderr + done.stdout


def test_a_tool_that_does_more_than_read_is_asked_about_and_allowed_by_name(project: Project, serve: Any) -> None:
    project.mode = "default"
    serve(once("forecast", {"city": "Rome"}))
    brought(project, "weather/tools.py", TOOL.replace('"read"', '"network"'), user=True)
    assert "Rome: sunny" not in prompt(project)["result"]
    done = project.retinue("-p", "x", "--output-format", "json", env={"RETINUE_PERMISSIONS_ALLOW": "forecast"})
    assert "Rome: sunny" in json.loads(done.stdout)["result"]
