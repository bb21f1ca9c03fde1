"""Promises of CodingCode's documents that no other test holds, through the program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue.guard.sandbox import kernel
from tests.program.compatibility_scene import (
    LIGHT,
    child,
    delegating,
    is_child,
    settings,
    system,
    told,
    tools,
    was_started,
    write,
)
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

AUDITOR = """---
name: security-auditor
description: Checks code for security faults
tools: ["read_file", "search_code", "search_files"]
readonly: true
maxSteps: 50
model: claude-haiku-4-5
---

You are a security audit specialist. Review code for common vulnerabilities.
"""
PROFILE = ".codingcode/agents/helper.md"
HEAD = "---\nname: helper\ndescription: It helps.\n"
BODY = "---\nHelp with the code.\n"


def dispatching(name: str) -> Any:
    return delegating("dispatch_agent", agent=name, prompt="CHILD")


def dispatch(project: Project, **more: Any) -> None:
    settings(project, delegationVocabulary="codingcode", **more)
    done = project.retinue("-p", "PARENT TALK")
    assert done.returncode == 0, done.stderr


def test_a_users_profile_called_as_a_built_in_agent_of_another_system_runs(project: Project, serve: Any) -> None:
    text = '---\nname: reviewer\ndescription: It helps.\ntools: ["read_file"]\n---\nReview as I do.\n'
    write(project, ".codingcode/agents/reviewer.md", text, home=True)
    server = serve(dispatching("reviewer"))
    dispatch(project)
    assert tools(child(server)) == {"read"}
    assert "Review as I do." in system(child(server))


def test_the_example_of_codingcode_runs_with_its_tools_steps_model_and_prompt(project: Project, serve: Any) -> None:
    write(project, ".codingcode/agents/security-auditor.md", AUDITOR)
    server = serve(dispatching("security-auditor"))
    dispatch(project)
    request = child(server)
    assert tools(request) == {"read", "grep", "find"}
    assert request.body["model"].startswith("claude-haiku-4-5")
    assert "You are a security audit specialist." in system(request)
    assert server.requests[0].body["model"].startswith("claude-sonnet-4-5"), "the main agent keeps its own"
    shown = project.json("agents", "show", "security-auditor", "--json")
    assert (shown["spec"]["max_turns"], shown["spec"]["readonly"]) == (50, True)


def test_a_profile_of_the_project_goes_before_the_users_and_both_folders_are_read(project: Project) -> None:
    write(project, ".codingcode/agents/one.md", "---\nname: one\ndescription: user\n---\nHelp.\n", home=True)
    write(project, PROFILE, HEAD.replace("It helps.", "user") + BODY, home=True)
    write(project, PROFILE, HEAD + BODY)
    agents = project.json("agents", "list", "--json")["agents"]
    found = {each["name"]: each for each in agents if each["shadowed_by"] is None}
    assert found["one"]["source"] == "user"
    assert (found["helper"]["source"], found["helper"]["description"]) == ("project", "It helps.")


def test_without_keys_a_profile_has_every_tool_no_server_and_the_main_agents_model(
    project: Project, serve: Any
) -> None:
    write(project, PROFILE, HEAD + BODY)
    server = serve(dispatching("helper"))
    dispatch(project, mcpServers={"light": LIGHT}, permissions={"allow": ["mcp__light"]})
    assert "mcp__light__add" in tools(server.requests[0]), "the main agent has it"
    found = tools(child(server))
    assert {"read", "write", "edit", "bash", "grep", "find", "ls"} <= found
    assert not [name for name in found if name.startswith("mcp__")]
    assert child(server).body["model"] == server.requests[0].body["model"]


def test_a_profile_has_the_servers_that_it_names(project: Project, serve: Any) -> None:
    write(project, PROFILE, HEAD + "mcpServers: [light]\n" + BODY, home=True)
    server = serve(dispatching("helper"))
    dispatch(project, mcpServers={"light": LIGHT, "other": LIGHT}, permissions={"allow": ["mcp__light"]})
    assert {name for name in tools(child(server)) if name.startswith("mcp__")} == {"mcp__light__add"}
    write(project, PROFILE, HEAD + 'tools: [read_file, "light:add"]\n' + BODY, home=True)
    dispatch(project, mcpServers={"light": LIGHT, "other": LIGHT}, permissions={"allow": ["mcp__light"]})
    assert tools(child(server)) == {"read", "mcp__light__add"}


def test_a_profile_that_is_converted_does_not_gain_servers(project: Project) -> None:
    write(project, PROFILE, HEAD + BODY)
    done = project.retinue("agents", "convert", "helper", "--to", "claude")
    assert done.returncode == 0 and "mcpServers: []" in done.stdout
    assert "added: servers (none)" in done.stderr


@pytest.mark.parametrize(("line", "writes"), [("", True), ("readonly: false\n", True), ("readonly: true\n", False)])
def test_a_read_only_profile_has_read_only_tools(project: Project, serve: Any, line: str, writes: bool) -> None:
    write(project, PROFILE, HEAD + line + BODY)
    server = serve(dispatching("helper"))
    dispatch(project)
    assert bool(tools(child(server)) & {"write", "edit"}) is writes
    assert "read" in tools(child(server))


def test_dispatch_refuses_what_is_switched_off_unknown_or_disabled(project: Project, serve: Any) -> None:
    write(project, PROFILE, HEAD + "disabled: true\n" + BODY)
    server = serve(dispatching("helper"))
    dispatch(project)
    assert "Subagent 'helper' is disabled." in told(server)
    server.answer = dispatching("nobody")
    dispatch(project)
    assert told(server).startswith("Unknown subagent: nobody.")
    dispatch(project, subagents={"enabled": False})
    assert "dispatch_agent" not in tools(server.requests[-1])
    assert not was_started(server)


def test_a_dispatched_agent_hears_its_prompt_only_and_its_last_words_are_the_result(
    project: Project, serve: Any
) -> None:
    def answer(request: Request) -> Reply:
        if is_child(request):
            call = ("read", {"path": "f1.txt"})
            return Reply("I look first.", [call]) if request.turn == 0 else Reply("It is in f1.")
        call = ("dispatch_agent", {"agent": "explore", "prompt": "CHILD"})
        return Reply("", [call]) if request.turn == 0 else Reply("done")

    server = serve(answer)
    dispatch(project)
    assert told(server) == "Note: Record: no files changed; no commands.\n\nIt is in f1."
    assert "PARENT TALK" not in json.dumps(child(server).body)
    runs = project.json("runs", "list", "--json", "--all")["runs"]
    (main,) = [run for run in runs if run["parent_id"] is None]
    (below,) = [run for run in runs if run["parent_id"] is not None]
    assert (below["agent"], below["parent_id"]) == ("explore", main["id"])


def test_the_hooks_of_a_profile_hear_its_own_run_only(project: Project, serve: Any) -> None:
    hook = "{name: mark, point: tool.execute.before, type: observer, command: sh, args: [-c, 'echo x >> heard']}"
    write(project, PROFILE, HEAD + f"hooks: [{hook}]\n" + BODY, home=True)

    def answer(request: Request) -> Reply:
        reading = [("read", {"path": "f1.txt"})]
        if is_child(request):
            return Reply("", reading) if request.turn == 0 else Reply("done")
        turns = [reading, [("dispatch_agent", {"agent": "helper", "prompt": "CHILD"})], reading]
        return Reply("", turns[request.turn]) if request.turn < 3 else Reply("done")

    serve(answer)
    dispatch(project)
    assert (project.cwd / "heard").read_text().splitlines() == ["x"]


def test_a_decision_before_the_spawn_may_deny_it(project: Project, serve: Any) -> None:
    says = '{"decision": "deny", "reason": "not today"}'
    hook = {
        "name": "veto", "point": "agent.subagent.spawn.before", "type": "decision",
        "command": "sh", "args": ["-c", f"echo '{says}'"],
    }  # fmt: skip
    write(project, ".codingcode/hooks.yaml", json.dumps({"hooks": [hook]}), home=True)
    server = serve(dispatching("explore"))
    dispatch(project)
    assert told(server).startswith("Subagent spawn denied:") and "not today" in told(server)
    assert not was_started(server)


@pytest.mark.skipif(kernel.why_not() is not None, reason=str(kernel.why_not()))
def test_the_commands_of_plan_change_nothing(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if is_child(request):
            look = ("execute_command", {"command": "cat f1.txt; echo x > new.txt; echo x > f1.txt"})
            return Reply("", [look]) if request.turn == 0 else Reply("planned")
        return dispatching("plan")(request)

    server = serve(answer)
    dispatch(project)
    (result,) = next(each for each in server.requests if is_child(each) and each.turn).results
    assert "alpha 1" in json.dumps(result)
    assert (project.cwd / "f1.txt").read_text().startswith("alpha 1")
    assert not (project.cwd / "new.txt").exists()
