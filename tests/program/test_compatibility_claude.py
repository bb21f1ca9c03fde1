"""Promises of the documents about Claude Code's agents that no other test holds, through the program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.program.compatibility_scene import (
    calling_agent,
    child,
    delegating,
    settings,
    system,
    told,
    tool_named,
    tools,
    write,
)
from tests.program.conftest import Project
from tests.program.model_server import Reply

AGENT = ".claude/agents/helper.md"
HEAD = "---\nname: helper\ndescription: It helps.\n"
BODY = "---\nHelp with the code.\n"


def delegate(project: Project, *words: str) -> None:
    done = project.retinue("-p", "PARENT TALK", *words)
    assert done.returncode == 0, done.stderr


def test_the_text_of_the_file_stands_in_place_of_the_main_prompt(project: Project, serve: Any) -> None:
    write(project, AGENT, HEAD + BODY)
    server = serve(calling_agent("helper"))
    delegate(project)
    assert "You are the main agent of Retinue" in system(server.requests[0])
    assert "You are the main agent of Retinue" not in system(child(server))
    assert "\n\nHelp with the code.\n\n" in system(child(server))
    assert "PARENT TALK" not in json.dumps(child(server).body)


@pytest.mark.parametrize("line", ["tools: Read,Glob, Grep\n", "tools: [Read, Glob, Grep]\n"])
def test_tools_may_be_a_comma_text_or_a_list(project: Project, serve: Any, line: str) -> None:
    write(project, AGENT, HEAD + line + BODY)
    server = serve(calling_agent("helper"))
    delegate(project)
    assert tools(child(server)) == {"read", "find", "grep"}


def test_disallowed_tools_go_first_and_then_the_list_counts(project: Project, serve: Any) -> None:
    server = serve(calling_agent("helper"))
    write(project, AGENT, HEAD + "disallowedTools: Write, Edit\n" + BODY)
    delegate(project)
    assert {"read", "bash"} <= tools(child(server)) and not tools(child(server)) & {"write", "edit"}
    write(project, AGENT, HEAD + "tools: Read, Write\ndisallowedTools: Write\n" + BODY)
    delegate(project)
    assert tools(child(server)) == {"read"}


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("", "claude-sonnet-4-5"),
        ("model: inherit\n", "claude-sonnet-4-5"),
        ("model: claude-haiku-4-5\n", "claude-haiku-4-5"),
    ],
)
def test_the_model_is_the_main_agents_or_the_one_that_is_named(
    project: Project, serve: Any, line: str, model: str
) -> None:
    write(project, AGENT, HEAD + line + BODY)
    server = serve(calling_agent("helper"))
    delegate(project)
    assert child(server).body["model"].startswith(model)


def test_isolation_that_nobody_can_give_refuses_the_launch(project: Project, serve: Any) -> None:
    write(project, AGENT, HEAD + "isolation: remote\n" + BODY)
    server = serve(lambda request: Reply("done"))
    done = project.retinue("run", "helper", "go")
    assert done.returncode == 2 and f"{AGENT}:4: 'isolation'" in done.stderr
    assert "Write 'isolation: worktree'" in done.stderr
    assert server.requests == []


def test_an_initial_prompt_may_be_a_slash_command(project: Project, serve: Any) -> None:
    skill = "---\nname: search\ndescription: Searches.\n---\nSearch everywhere for $ARGUMENTS.\n"
    write(project, ".claude/skills/search/SKILL.md", skill)
    write(project, AGENT, HEAD + "initialPrompt: /search TODO\n" + BODY)
    server = serve(calling_agent("helper"))
    delegate(project)
    words = json.dumps(child(server).body["messages"][0])
    assert "Search everywhere for TODO." in words and words.index("for TODO.") < words.index("CHILD")
    assert project.retinue("run", "helper", "Do it").returncode == 0
    assert "Search everywhere for TODO." in json.dumps(server.requests[-1].body["messages"][0])


def test_agents_come_from_the_users_folder_and_the_projects_and_what_is_none_blocks_no_other(project: Project) -> None:
    text = "---\nname: {name}\ndescription: {name}\n" + BODY
    write(project, ".claude/agents/one.md", text.format(name="one"), home=True)
    write(project, ".claude/agents/two.md", text.format(name="two"))
    write(project, ".claude/agents/broken.md", "---\nname: [\n---\nHelp.\n")
    write(project, ".claude/agents/README.md", "# How to use these\n")
    found = project.json("agents", "list", "--json")
    sources = {each["name"]: each["source"] for each in found["agents"]}
    assert (sources["one"], sources["two"]) == ("user", "project")
    reasons = {each["path"].rpartition("/")[2]: each["reason"] for each in found["failed"]}
    assert set(reasons) == {"broken.md", "README.md"} and "frontmatter" in reasons["README.md"]


@pytest.mark.parametrize("name", ["Explore", "Plan"])
def test_explore_and_plan_can_neither_start_agents_nor_write_and_plan_hands_in_a_plan(
    project: Project, serve: Any, name: str
) -> None:
    server = serve(calling_agent(name))
    delegate(project)
    assert not tools(child(server)) & {"Agent", "write", "edit"}
    assert ("exit_plan" in tools(child(server))) is (name == "Plan")
    assert "Agent" in tools(server.requests[0])


def test_the_plan_that_plan_hands_in_is_its_answer(project: Project, serve: Any) -> None:
    call = {"subagent_type": "Plan", "prompt": "CHILD", "description": "d", "run_in_background": False}
    server = serve(delegating("Agent", Reply("", [("exit_plan", {"plan": "1. Change a.py"})]), **call))
    delegate(project)
    assert "Agent completed" in told(server) and "1. Change a.py" in told(server)


@pytest.mark.parametrize(
    ("scope", "folder"),
    [("user", "home/.retinue/agent-memory"), ("project", "project/.retinue/agent-memory"),
     ("local", "project/.retinue/agent-memory-local")],
)  # fmt: skip
def test_a_memory_lies_where_its_scope_says_and_is_read_when_the_run_starts(
    project: Project, serve: Any, scope: str, folder: str
) -> None:
    write(project, AGENT, HEAD + f"tools: Read, Write\nmemory: {scope}\n" + BODY)
    place = project.cwd.parent / folder / "helper" / "MEMORY.md"
    calls = [("write", {"path": str(place), "content": "- remembered\n"})]
    server = serve(lambda request: Reply("", calls) if request.turn == 0 else Reply("done"))
    assert project.retinue("run", "helper", "go").returncode == 0
    assert place.read_text() == "- remembered\n"
    assert project.retinue("run", "helper", "go").returncode == 0
    text = system(server.requests[-1])
    assert text.index("Help with the code.") < text.index("- remembered"), "at the end"
    ignored = [path.name for path in place.parents[2].rglob(".gitignore")]
    assert bool(ignored) is (scope == "local"), "what is local is not committed"


def test_the_guide_is_there_unless_built_in_agents_are_switched_off(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    assert "retinue-guide" in [agent["name"] for agent in project.json("agents", "list", "--json")["agents"]]
    settings(project, disableDefaultAgents=True)
    delegate(project)
    assert "- Explore:" not in tool_named(server.requests[0], "Agent")["description"]
    names = [agent["name"] for agent in project.json("agents", "list", "--json")["agents"]]
    assert "retinue-guide" not in names
