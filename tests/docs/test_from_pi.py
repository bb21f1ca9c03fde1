"""docs/coming-from-pi.md, row by row, with real files of pi and pi-subagents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.docs.coming_from import (
    assert_read,
    install,
    listed,
    needs_corpus,
    playing,
    ran,
    real_files,
    said,
    shown_by,
    shows,
)
from tests.program.compatibility_scene import LIGHT, calling_agent, child, tools, write
from tests.program.conftest import Project
from tests.program.model_server import Reply
from tests.recordings.scenes import git

from retinue import Retinue

PAGE = "docs/coming-from-pi.md"
HELPER = "---\nname: helper\ndescription: Helps with the code.\n{}---\nYou help with the code of this project.\n"


def shows_row(*cells: str) -> Any:
    return shows(PAGE, *cells)


@needs_corpus
@shows_row("`.pi/agents/*.md`, `.agents/agents/*.md`, `~/.pi/agent/agents` (or `PI_CODING_AGENT_DIR`)")
def test_real_files_are_agents_in_every_folder_of_the_page(project: Project) -> None:
    files = real_files("pi", 30)
    placed = install(project, ".pi/agents", files[:10])
    placed |= install(project, ".agents/agents", files[10:20])
    placed |= install(project, ".pi/agent/agents", files[20:25], home=True)
    assert_read(project, placed, "pi", "devkit")
    moved = install(project, "elsewhere/agents", files[25:], home=True)
    done = ran(project, "agents", "list", "--json", env={"PI_CODING_AGENT_DIR": str(project.home / "elsewhere")})
    names = {agent["name"] for agent in json.loads(done.stdout)["agents"]}
    assert set(moved) <= names and not {name for name, _ in files[20:25]} & names


@shows_row("`subagents.json`")
def test_their_settings_count_below_ours_and_the_list_shows_which(project: Project) -> None:
    write(project, ".pi/subagents.json", json.dumps({"maxConcurrent": 16, "graceTurns": 2}))
    write(project, ".retinue/settings.json", json.dumps({"graceTurns": 3}))
    found = {row["name"]: row for row in project.json("settings", "list", "--json")["settings"]}
    assert (found["maxConcurrent"]["value"], found["graceTurns"]["value"]) == (16, 3)
    assert "subagents.json" in ran(project, "settings", "list").stdout


@shows_row("`.pi/mcp.json`, `~/.pi/agent/mcp.json`")
def test_servers_of_both_files_are_there(project: Project) -> None:
    write(project, ".pi/mcp.json", json.dumps({"mcpServers": {"one": LIGHT}}))
    write(project, ".pi/agent/mcp.json", json.dumps({"mcpServers": {"two": LIGHT}}), home=True)
    found = project.json("servers", "list", "--json")["servers"]
    assert {each["name"]: each["trusted"] for each in found} == {"one": False, "two": True}


@shows_row("prompts in `.pi/prompts`")
def test_a_prompt_is_called_by_its_name(project: Project, serve: Any) -> None:
    write(project, ".pi/prompts/review.md", "Review $1 twice.\n")
    server = serve(lambda request: Reply("done"))
    ran(project, "-p", "/review shop.py")
    assert "Review shop.py twice." in said(server.requests[0])


@shows_row("`Agent`, `get_subagent_result`, `steer_subagent`")
def test_the_main_agent_has_the_three_tools(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    ran(project, "-p", "hello")
    assert {"Agent", "get_subagent_result", "steer_subagent"} <= tools(server.requests[0])
    shown_by("program/test_compatibility_pi.py::test_the_three_tools_have_all_parameters_of_pi")


@shows_row("widget, `/agents`, wizard, conversation viewer, F9")
def test_the_app_has_the_views_of_pi() -> None:
    import importlib

    from retinue.frontends.tui.frame import COMMANDS, SCREENS

    importlib.import_module("retinue.frontends.tui.app")
    assert "agents" in set(COMMANDS) | {screen.command for screen in SCREENS.values()}
    for name in ("widget", "wizard", "viewer"):
        assert importlib.import_module(f"tests.frontends.tui.test_{name}")
    from retinue.settings.table import fields

    assert fields()["abortResendKey"].default == "f9"


@shows_row("`@agent message`")
def test_a_message_reaches_the_agent_that_it_names(project: Project, serve: Any) -> None:
    def answer(request: Any) -> Reply:
        if "CHILD" in said(request):
            return Reply("the child answers")
        return Reply(calls=[("Agent", arguments)]) if request.turn == 0 else Reply("done")

    arguments = {"subagent_type": "Explore", "prompt": "CHILD", "description": "d", "name": "scout"}
    server = serve(answer)
    ran(project, "-p", "start it")
    out = ran(project, "-p", "@scout And the tests?", "--continue").stdout
    assert "And the tests?" in said(server.requests[-1]) and "the child answers" in out


@shows_row("schedules")
def test_a_schedule_is_added_and_listed(project: Project) -> None:
    ran(project, "schedule", "add", "Explore", "Look", "--when", "0 0 9 * * 1-5", "--name", "look")
    assert "look" in ran(project, "schedule", "list").stdout
    shown_by("frontends/tui/test_schedules.py::test_a_job_is_added_step_by_step")


@shows_row("`extensions: …`, `ext:NAME`")
def test_extensions_are_plugins_and_a_javascript_one_is_named(project: Project, serve: Any) -> None:
    tool = '@tool(effects=["read"])\ndef time_in(zone: str) -> str:\n    "The time."\n    return zone\n'
    write(project, ".retinue/plugins/clock.py", f"from retinue import tool\n\n\n{tool}", home=True)
    server = serve(lambda request: Reply("done"))
    for line, has in (
        ("extensions: [clock]\n", True),
        ("extensions: false\n", False),
        ("tools: read, ext:clock\n", True),
    ):
        write(project, ".pi/agents/helper.md", HELPER.format(line))
        ran(project, "run", "helper", "go")
        assert ("time_in" in tools(server.requests[-1])) is has, line
    write(project, ".pi/agents/helper.md", HELPER.format("extensions: [web-tools.ts]\n"))
    assert "web-tools.ts" in ran(project, "run", "helper", "go").stderr


@shows_row("`isolation: worktree`")
def test_a_worktree_is_a_branch_that_integrate_merges(project: Project, serve: Any) -> None:
    git(project.cwd, "init", "-q")
    for name, value in (("user.name", "x"), ("user.email", "x@example.invalid")):
        git(project.cwd, "config", name, value)
    git(project.cwd, "add", ".")
    git(project.cwd, "commit", "-qm", "first")
    write(project, ".pi/agents/helper.md", HELPER.format("isolation: worktree\n"))
    serve(playing(("write", {"path": "new.txt", "content": "x\n"})))
    ran(project, "run", "helper", "go")
    assert not (project.cwd / "new.txt").exists()
    branches = [name.strip("* +") for name in git(project.cwd, "branch").splitlines()]
    (branch,) = [name for name in branches if name not in ("main", "master")]
    ran(project, "integrate", branch)
    assert (project.cwd / "new.txt").exists()


@shows_row("`memory: user`, `project`, `local`")
@pytest.mark.parametrize(
    ("scope", "folder"),
    [("user", ".pi/agent-memory"), ("project", ".pi/agent-memory"), ("local", ".pi/agent-memory-local")],
)
def test_notes_that_pi_wrote_are_read(project: Project, serve: Any, scope: str, folder: str) -> None:
    write(project, f"{folder}/helper/MEMORY.md", "The tests are slow.\n", home=scope == "user")
    write(project, ".pi/agents/helper.md", HELPER.format(f"memory: {scope}\n"))
    server = serve(lambda request: Reply("done"))
    ran(project, "run", "helper", "go")
    assert "The tests are slow." in said(server.requests[0])


@shows_row("events and RPC of `pi.events`")
async def test_events_and_calls_of_programs(project: Project, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(lambda request: Reply("done"))
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    heard: list[str] = []
    async with Retinue(project.cwd) as retinue:
        retinue.events.on("subagents:completed", lambda data: heard.append(data["status"]))
        run = await retinue.spawn("Explore", "look")
        await run.wait()
        answer = await retinue.rpc.call("ping", {})
    assert heard == ["completed"] and answer["success"]


@shows_row("models")
def test_a_model_with_a_level_of_thinking_works(project: Project, serve: Any) -> None:
    write(project, ".pi/agents/helper.md", HELPER.format("model: anthropic/claude-sonnet-4-5:high\n"))
    server = serve(lambda request: Reply("done"))
    ran(project, "run", "helper", "go")
    assert server.requests[0].body["model"] == "claude-sonnet-4-5" and "thinking" in server.requests[0].body


@shows_row("`false` and `no`")
def test_a_limit_that_cannot_be_read_stops_the_agent_with_a_reason(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    write(project, ".pi/agents/helper.md", HELPER.format("max_turns: soon\n"))
    done = project.retinue("run", "helper", "go")
    assert done.returncode == 2 and "max_turns" in done.stderr and server.requests == []
    for word in ("false", "no"):
        write(project, ".pi/agents/helper.md", HELPER.format(f"extensions: {word}\n"))
        ran(project, "run", "helper", "go")
        assert tools(server.requests[-1]) <= {"read", "write", "edit", "bash", "grep", "find", "ls", "bash_output"}


@shows_row("keys without effect")
def test_keys_without_effect_are_kept_and_reported(project: Project) -> None:
    keys = ("output", "defaultReads", "defaultProgress", "completionGuard")
    write(project, ".pi/agents/helper.md", HELPER.format("".join(f"{key}: x\n" for key in keys)))
    shown = project.json("agents", "show", "helper", "--json")
    assert {shown["fates"][key]["fate"] for key in keys} == {"ignored"}
    assert set(keys) <= set(shown["spec"]["extra"])


@shows_row("where it runs")
def test_no_node_is_needed(project: Project, serve: Any) -> None:
    write(project, ".pi/agents/helper.md", HELPER.format(""))
    serve(lambda request: Reply("done"))
    ran(project, "run", "helper", "go", env={"PATH": "/nowhere"})


@needs_corpus
def test_a_real_file_is_started_by_the_main_agent(project: Project, serve: Any) -> None:
    (name, _), *_ = install(project, ".pi/agents", real_files("pi")).items()
    server = serve(calling_agent(name))
    ran(project, "-p", "go")
    assert child(server).body["messages"] and name in listed(project)
