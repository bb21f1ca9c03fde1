"""Names in lists of tools and agents mean the same everywhere, and one that means nothing is reported."""

from __future__ import annotations

import json

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply


def _write(project: Project, folder: str, name: str, keys: str) -> None:
    path = project.cwd / folder / "agents" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: Looks at files.\n{keys}\n---\nLook at the files and answer.\n")


@pytest.mark.parametrize(
    ("folder", "keys"),
    [
        (".claude", "tools: Agent(Explor), Read"),
        (".pi", "prompt_mode: replace\ntools: read\nallowed_subagents: Explor"),
    ],
)
def test_an_agent_that_cannot_be_started_is_reported(project: Project, serve, folder: str, keys: str) -> None:
    serve(lambda request: Reply("Done."))
    _write(project, folder, "boss", keys)
    linted = project.retinue("agents", "lint")
    shown = project.retinue("run", "boss", "Look").stderr
    for text in (linted.stdout, shown):
        assert "It may start 'Explor', but there is no such agent. Did you mean 'Explore'?" in text
    assert "unknown-subagent" in linted.stdout


def test_an_agent_that_resembles_none_is_reported(project: Project, serve) -> None:
    serve(lambda request: Reply("Done."))
    _write(project, ".claude", "boss", "tools: Agent(nosuch, Explore), Read")
    shown = project.retinue("run", "boss", "Look").stderr
    assert "It may start 'nosuch', but there is no such agent." in shown and "'Explore'" not in shown


@pytest.mark.parametrize("pattern", ["B*", "Bash*", "bash*", "*Bash"])
def test_a_pattern_of_names_denies_in_files_and_rules(project: Project, serve, pattern: str) -> None:
    server = serve(lambda request: Reply("Done."))
    _write(project, ".claude", "quiet", f"disallowedTools: '{pattern}'")
    assert project.retinue("run", "quiet", "Look").returncode == 0
    assert project.retinue("run", "general-purpose", "Look", "--disallowedTools", pattern).returncode == 0
    assert len(server.requests) == 2
    for request in server.requests:
        names = {tool["name"].lower() for tool in request.body["tools"]}
        assert "read" in names and "bash" not in names


def test_listed_names_run_exactly_the_agent_they_name(project: Project, serve) -> None:
    serve(lambda request: Reply("Done."))
    listed = {entry["path"]: entry["name"] for entry in project.json("agents", "list", "--json")["agents"]}
    text = project.retinue("agents", "list").stdout
    profiles = {path: name for path, name in listed.items() if "/codingcode/" in path}
    assert set(profiles.values()) == {"codingcode:explore", "codingcode:plan"}
    for path, name in profiles.items():
        assert f"\n{name} " in text
        assert project.json("agents", "show", name, "--json")["path"] == path


def test_a_group_of_tools_in_a_claude_file_is_named(project: Project) -> None:
    _write(project, ".claude", "seeker", "tools: Search")
    assert "Claude Code itself has no tool 'Search'; Retinue reads it as" in project.retinue("agents", "lint").stdout


@pytest.mark.parametrize(
    ("settings", "tool", "reason"),
    [
        ({"web": {"enabled": False}}, "web_search", "the setting web.enabled is false."),
        ({"lsp": {"enabled": False}}, "lsp", "the setting lsp.enabled is false."),
        ({"convert": {"enabled": False}}, "convert_content", "the setting convert.enabled is false."),
        ({"subagents": {"enabled": False}}, "Agent", "the setting subagents.enabled is false."),
        ({"maxSubagentDepth": 0}, "Agent", "agents may be nested 0 deep at most, and you are at that depth."),
        ({"permissions": {"deny": ["Bash"]}}, "bash", "this session does not offer it."),
        ({}, "exit_plan", "this session does not offer it."),
    ],
)
@pytest.mark.parametrize("agent", [(), ("--agent", "general-purpose")])
def test_a_model_hears_what_took_a_tool_from_it(
    project: Project, serve, settings: object, tool: str, reason: str, agent: tuple[str, ...]
) -> None:
    server = serve(lambda request: Reply("Done.") if request.turn else Reply(calls=[(tool, {})]))
    file = project.home / ".retinue" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps(settings))
    assert project.retinue("-p", "Look", *agent).returncode == 0
    assert f"{tool} is not among your tools: {reason}" in str(server.requests[-1].results)


def test_a_model_hears_that_its_file_does_not_give_it_a_tool(project: Project, serve) -> None:
    server = serve(lambda request: Reply("Done.") if request.turn else Reply(calls=[("bash", {})]))
    _write(project, ".claude", "reader", "tools: Read")
    assert project.retinue("run", "reader", "Look").returncode == 0
    assert "your definition does not give it to you." in str(server.requests[-1].results)
