"""docs/coming-from-codingcode.md, row by row, with real files of CodingCode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.docs.coming_from import assert_read, install, needs_corpus, ran, real_files, said, shown_by, shows
from tests.program.compatibility_scene import LIGHT, child, delegating, settings, tools, write
from tests.program.conftest import Project
from tests.program.model_server import Reply

PAGE = "docs/coming-from-codingcode.md"
PROFILE = ".codingcode/agents/helper.md"
HELPER = "---\nname: helper\ndescription: Helps with the code.\n{}---\nYou help with the code of this project.\n"


def shows_row(*cells: str) -> Any:
    return shows(PAGE, *cells)


def dispatch(project: Project, name: str = "helper") -> None:
    settings(project, delegationVocabulary="codingcode")
    project.server.answer = delegating("dispatch_agent", agent=name, prompt="CHILD")
    ran(project, "-p", "go")


@needs_corpus
@shows_row("`.codingcode/agents/*.md`, `~/.codingcode/agents`")
def test_real_files_are_agents_in_the_project_and_at_home(project: Project) -> None:
    files = real_files("codingcode", 20)
    assert len(files) >= 10
    placed = install(project, ".codingcode/agents", files[:10])
    placed |= install(project, ".codingcode/agents", files[10:], home=True)
    assert_read(project, placed, "codingcode")


@shows_row("`config.yaml`")
def test_their_settings_count_below_ours_and_the_list_shows_which(project: Project) -> None:
    write(project, ".codingcode/config.yaml", "subagent:\n  enabled: false\n")
    found = {row["name"]: row for row in project.json("settings", "list", "--json")["settings"]}
    assert found["subagents.enabled"]["value"] is False
    assert "config.yaml" in ran(project, "settings", "list").stdout
    settings(project, subagents={"enabled": True})
    found = {row["name"]: row for row in project.json("settings", "list", "--json")["settings"]}
    assert found["subagents.enabled"]["value"] is True


@shows_row("`mcp.yaml` in `.codingcode`")
def test_servers_of_a_project_are_asked_after_consent(project: Project) -> None:
    for home in (False, True):
        write(project, ".codingcode/mcp.yaml", json.dumps({"servers": {f"s{int(home)}": LIGHT}}), home=home)
    found = project.json("servers", "list", "--json")["servers"]
    assert {each["name"]: each["trusted"] for each in found} == {"s0": False, "s1": True}


@shows_row("`read_file`, `search_code`, `execute_command`, … in `tools`")
@pytest.mark.parametrize(
    "line", ['["read_file", "search_code", "execute_command"]', "read_file, search_code, execute_command"]
)
def test_names_of_tools_are_understood_as_a_list_and_as_a_text(project: Project, serve: Any, line: str) -> None:
    server = serve(lambda request: Reply("done"))
    write(project, PROFILE, HELPER.format(f"tools: {line}\n"))
    dispatch(project)
    assert {"read", "grep", "bash"} <= tools(child(server))
    assert not {"write", "edit", "find", "ls"} & tools(child(server))


@shows_row("`dispatch_agent {agent, prompt}`")
def test_dispatch_agent_is_there_with_the_setting_and_agent_without(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    write(project, PROFILE, HELPER.format(""))
    dispatch(project)
    assert "dispatch_agent" in tools(server.requests[0]) and "Agent" not in tools(server.requests[0])
    assert "CHILD" in said(child(server))
    settings(project)
    ran(project, "-p", "go")
    assert "Agent" in tools(server.requests[-1]) and "dispatch_agent" not in tools(server.requests[-1])


@shows_row("the profiles `explore` and `plan`")
def test_both_profiles_are_there(project: Project) -> None:
    for name in ("explore", "plan"):
        assert project.json("agents", "show", f"codingcode:{name}", "--json")["dialect"] == "codingcode"
    shown_by("program/test_compatibility_codingcode.py::test_the_commands_of_plan_change_nothing")


@shows_row("`maxSteps`, else those of the parent")
def test_steps_are_the_files_else_the_parents(project: Project, serve: Any) -> None:
    write(project, PROFILE, HELPER.format("maxSteps: 7\n"))
    assert project.json("agents", "show", "helper", "--json")["spec"]["max_turns"] == 7
    shown_by("runs/test_builtin_agents.py::test_a_file_has_the_limits_that_its_dialect_promises")


@shows_row("`mcpServers`: none unless named")
def test_servers_are_those_that_the_file_names(project: Project) -> None:
    shown_by(
        "program/test_compatibility_codingcode.py::test_a_profile_has_the_servers_that_it_names",
        "program/test_compatibility_codingcode.py::test_without_keys_a_profile_has_every_tool_no_server_and_the_main_agents_model",
    )


@shows_row("`disabled: true`")
def test_a_disabled_profile_is_switched_on_by_a_command(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    write(project, PROFILE, HELPER.format("disabled: true\n"))
    assert project.retinue("run", "helper", "go").returncode == 1
    ran(project, "agents", "enable", "helper")
    ran(project, "run", "helper", "go")


@shows_row("hooks in the file and in `hooks.yaml`")
def test_hooks_of_both_places_are_called(project: Project) -> None:
    shown_by(
        "program/test_compatibility_codingcode.py::test_the_hooks_of_a_profile_hear_its_own_run_only",
        "program/test_compatibility_codingcode.py::test_a_decision_before_the_spawn_may_deny_it",
    )
