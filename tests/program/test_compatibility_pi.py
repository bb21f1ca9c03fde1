"""Promises of pi-subagents' documents that no other test holds, through the program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.program.compatibility_scene import (
    calling_agent,
    child,
    delegating,
    is_child,
    settings,
    system,
    told,
    tool_named,
    tools,
    was_started,
    write,
)
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

AGENT = ".pi/agents/helper.md"
BODY = "---\nHelp with the code.\n"
SEVEN = {"read", "write", "edit", "bash", "grep", "find", "ls"}


def delegate(project: Project, *words: str) -> None:
    done = project.retinue("-p", "PARENT TALK", *words)
    assert done.returncode == 0, done.stderr


def test_the_three_tools_have_all_parameters_of_pi(project: Project, serve: Any) -> None:
    server = serve(calling_agent("Plan", thinking="low", max_turns=3, isolated=True))
    delegate(project)
    request = server.requests[0]
    agent = tool_named(request, "Agent")["input_schema"]
    shown = {"prompt", "description", "subagent_type", "model", "thinking", "max_turns", "resume", "isolated"}
    shown |= {"isolation", "inherit_context", "schedule"}
    assert shown <= set(agent["properties"]), "also where there is no repository"
    assert agent["required"] == ["prompt", "description"]
    assert child(server).body["thinking"]["budget_tokens"] > 0, "it was taken"
    result = tool_named(request, "get_subagent_result")["input_schema"]
    assert {"agent_id", "wait", "verbose", "peek"} <= set(result["properties"])
    steer = tool_named(request, "steer_subagent")["input_schema"]
    assert set(steer["required"]) == {"agent_id", "message"}


def test_a_background_call_returns_an_id_at_once_and_verbose_gives_the_conversation(
    project: Project, serve: Any
) -> None:
    def answer(request: Request) -> Reply:
        if is_child(request):
            return Reply("", [("read", {"path": "f1.txt"})]) if request.turn == 0 else Reply("It is in f1.")
        if request.turn == 0:
            call = {"prompt": "CHILD", "description": "d", "subagent_type": "Explore", "name": "scout"}
            return Reply("", [("Agent", call)])
        if request.turn == 1:
            return Reply("", [("get_subagent_result", {"agent_id": "scout", "wait": True, "verbose": True})])
        return Reply("done")

    server = serve(answer)
    delegate(project)
    results = [json.dumps(each) for each in server.requests[-1].results]
    assert "started in the background" in results[0] and "It is in f1." not in results[0]
    assert "It is in f1." in results[1] and "alpha 1" in results[1], "with what it read"


def test_general_purpose_is_a_twin_and_explore_and_plan_have_prompts_of_their_own(project: Project, serve: Any) -> None:
    server = serve(calling_agent("general-purpose"))
    delegate(project)
    main, twin = server.requests[0], child(server)
    assert system(twin).startswith(system(main).rstrip())
    assert tools(twin) >= SEVEN and twin.body["model"] == main.body["model"]
    for name in ("Explore", "Plan"):
        server.answer = calling_agent(name)
        delegate(project)
        alone = child(server)
        assert "You are the main agent of Retinue" not in system(alone)
        assert ("haiku" in alone.body["model"]) is (name == "Explore") and "haiku" not in main.body["model"]


def test_explore_works_on_the_small_model_and_falls_back_to_the_one_in_use(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))

    def models(*words: str, **values: Any) -> list[str]:
        """What one run of Explore asks, in order."""
        settings(project, **values)
        before = len(server.requests)
        done = project.retinue("run", "Explore", "go", *words)
        assert done.returncode == 0, done.stderr
        return [each.body["model"] for each in server.requests[before:]]

    (small,) = models()
    assert small.startswith("claude-haiku-")
    usual = "claude-sonnet-4-5"
    assert models("--model", "anthropic/claude-opus-4-5") == ["claude-opus-4-5"], "a person's choice"
    assert models(exploreModel="inherit") == [usual]
    assert models(exploreModel="anthropic/claude-sonnet-4-6") == ["claude-sonnet-4-6"]
    assert models(scopeModels=True, enabledModels=[f"anthropic/{usual}"]) == [usual], "nothing outside of the scope"
    project.server, gone = server, Reply(status=404)
    server.answer = lambda request: gone if "haiku" in request.body["model"] else Reply("done")
    assert models() == [small, usual], "there is no such model here"


def test_a_disabled_agent_is_not_offered_and_not_started(project: Project, serve: Any) -> None:
    write(project, ".pi/agents/Plan.md", "---\ndescription: Off here.\nenabled: false\n" + BODY)
    server = serve(calling_agent("Plan"))
    settings(project, fallbackSubagent=False)
    delegate(project)
    assert "- Plan:" not in tool_named(server.requests[0], "Agent")["description"]
    assert not was_started(server)


def test_the_projects_agent_goes_before_the_users_whose_folder_can_be_moved(project: Project) -> None:
    moved = {"PI_CODING_AGENT_DIR": str(project.home / "elsewhere")}
    write(project, "elsewhere/agents/helper.md", "---\ndescription: moved\n" + BODY, home=True)
    write(project, ".pi/agent/agents/helper.md", "---\ndescription: usual\n" + BODY, home=True)

    def description(env: dict[str, str]) -> str:
        shown = project.retinue("agents", "show", "helper", "--json", env=env)
        return json.loads(shown.stdout)["spec"]["description"]

    assert (description({}), description(moved)) == ("usual", "moved")
    write(project, AGENT, "---\ndescription: the project's\n" + BODY)
    assert (description({}), description(moved)) == ("the project's", "the project's")


@pytest.mark.parametrize(
    ("line", "expected"),
    [("", SEVEN), ("tools: all\n", SEVEN), ("tools: '*'\n", SEVEN), ("tools: none\n", set()), ("tools: ''\n", set())],
)
def test_what_tools_means(project: Project, serve: Any, line: str, expected: set[str]) -> None:
    write(project, AGENT, f"---\ndescription: d\n{line}" + BODY)
    server = serve(calling_agent("helper"))
    delegate(project)
    assert tools(child(server)) & SEVEN == expected
    assert bool(tools(child(server))) is bool(expected)


@pytest.mark.parametrize(
    ("listed", "more"),
    [("*", set()), ("all", set()), ("*, ext:foo/bar", set()), ("*, fetch_content", {"fetch_content"})],
)
def test_a_star_is_the_seven_and_other_names_are_added(
    project: Project, serve: Any, listed: str, more: set[str]
) -> None:
    write(project, AGENT, "---\ndescription: d\n" + BODY)
    server = serve(calling_agent("helper"))
    delegate(project)
    assert tools(child(server)) > SEVEN, "without the key it has what the extras bring as well"
    write(project, AGENT, f"---\ndescription: d\ntools: '{listed}'\n" + BODY)
    delegate(project)
    assert tools(child(server)) == SEVEN | more


@pytest.mark.parametrize(
    ("line", "has"), [("", True), ("skills: true\n", True), ("skills: false\n", False), ("isolated: true\n", False)]
)
def test_skills_are_the_parents_unless_the_file_says_none(project: Project, serve: Any, line: str, has: bool) -> None:
    skill = "---\nname: pdf\ndescription: About pages\n---\nTurn every page.\n"
    write(project, ".pi/skills/pdf/SKILL.md", skill)
    write(project, AGENT, f"---\ndescription: d\n{line}" + BODY)
    server = serve(calling_agent("helper"))
    delegate(project)
    assert ("About pages" in json.dumps(child(server).body)) is has
    assert ("skill" in tools(child(server))) is has
    if "isolated" in line:
        assert tools(child(server)) == SEVEN


def test_a_misspelt_tool_is_said_by_the_run_and_by_lint(project: Project, serve: Any) -> None:
    write(project, AGENT, "---\ndescription: d\ntools: reed, grep\n" + BODY)
    server = serve(lambda request: Reply("done"))
    done = project.retinue("run", "helper", "go")
    assert tools(server.requests[0]) == {"grep"}
    assert "reed" in done.stderr and "reed" in project.retinue("agents", "lint").stdout
    write(project, AGENT, "---\ndescription: d\ntools: reed, grepp\n" + BODY)
    refused = project.retinue("run", "helper", "go")
    assert refused.returncode != 0 and "zero tools" in refused.stderr and len(server.requests) == 1
    assert "Correct `tools` in /" in refused.stderr


def test_an_excluded_extension_is_still_loaded_but_gives_no_tool(project: Project, serve: Any) -> None:
    loaded = project.home / "loaded"
    text = f"""open({str(loaded)!r}, "w").close()
from retinue import tool

@tool(effects=["read"])
def forecast(city: str) -> str:
    "The weather in a city."
    return "sunny"
"""
    write(project, ".retinue/plugins/weather.py", text, home=True)
    server = serve(lambda request: Reply("done"))
    for line, has in (("exclude_extensions: Weather\n", False), ("", True)):
        write(project, AGENT, f"---\ndescription: d\n{line}" + BODY)
        assert project.retinue("run", "helper", "go").returncode == 0
        assert ("forecast" in tools(server.requests[-1])) is has
        assert loaded.exists(), "it is no sandbox"


def test_thinking_is_the_files_else_the_calls_else_the_parents(project: Project, serve: Any) -> None:
    server = serve(calling_agent("helper"))
    budgets = []
    for line, call in (("", {}), ("", {"thinking": "low"}), ("thinking: minimal\n", {"thinking": "low"})):
        write(project, AGENT, f"---\ndescription: d\n{line}" + BODY)
        server.answer = calling_agent("helper", **call)
        delegate(project, "--thinking", "high")
        budgets.append(child(server).body["thinking"]["budget_tokens"])
    assert budgets[0] == server.requests[0].body["thinking"]["budget_tokens"], "inherited"
    assert budgets[0] > budgets[1] > budgets[2]


def test_an_agent_that_goes_on_after_a_restart_keeps_the_thinking_it_inherited(project: Project, serve: Any) -> None:
    server = serve(calling_agent("Explore"))
    delegate(project, "--thinking", "high")
    (run,) = [run for run in project.json("runs", "list", "--json", "--all")["runs"] if run["parent_id"]]
    done = project.retinue("runs", "resume", run["id"], "and now?")
    assert done.returncode == 0, done.stderr
    assert "and now?" in json.dumps(server.requests[-1].body)
    assert server.requests[-1].body["thinking"] == child(server).body["thinking"]


@pytest.mark.parametrize(("line", "ended"), [("max_turns: 0\n", "completed"), ("", "aborted")])
def test_max_turns_0_is_unlimited_whatever_the_default(project: Project, serve: Any, line: str, ended: str) -> None:
    write(project, AGENT, f"---\ndescription: d\n{line}" + BODY)
    settings(project, defaultMaxTurns=1, graceTurns=1)
    many = [("read", {"path": f"f{number}.txt"}) for number in range(5)]
    serve(lambda request: Reply("", [many[request.turn]]) if request.turn < 5 else Reply("done"))
    done = project.retinue("run", "helper", "go", "--json")
    assert json.loads(done.stdout)["details"]["results"][0]["status"] == ended


def test_append_puts_the_text_after_the_parents_prompt_and_replace_is_the_default(project: Project, serve: Any) -> None:
    write(project, "AGENTS.md", "Always sing.\n")
    server = serve(calling_agent("helper"))
    for line, twin in (("", False), ("prompt_mode: replace\n", False), ("prompt_mode: append\n", True)):
        write(project, AGENT, f"---\ndescription: d\n{line}" + BODY)
        delegate(project)
        text = system(child(server))
        assert "Help with the code." in text
        assert text.startswith(system(server.requests[0]).rstrip()) is twin
        assert ("Always sing." in text) is twin


@pytest.mark.parametrize("extra", [{"inherit_context": True}, {"resume": "abc"}])
def test_a_schedule_can_neither_inherit_nor_resume(project: Project, serve: Any, extra: dict[str, Any]) -> None:
    server = serve(delegating("Agent", prompt="CHILD", description="d", schedule="+1h", **extra))
    delegate(project)
    assert f"`schedule` cannot be combined with `{next(iter(extra))}`" in told(server)
    assert project.json("schedule", "list", "--json")["jobs"] == []


def test_a_headless_session_ends_without_waiting_for_what_it_scheduled(project: Project, serve: Any) -> None:
    server = serve(delegating("Agent", prompt="CHILD", description="d", schedule="+1h"))
    delegate(project)
    (job,) = project.json("schedule", "list", "--json")["jobs"]
    assert (job["schedule"], job["type"], job["runs"]) == ("+1h", "once", 0)
    assert not was_started(server)


def test_the_defaults_of_pi_are_ours(project: Project) -> None:
    found = {row["name"]: row["value"] for row in project.json("settings", "list", "--json")["settings"]}
    expected = {
        "maxConcurrent": 4, "defaultMaxTurns": None, "graceTurns": 5, "defaultJoinMode": "async",
        "schedulingEnabled": True, "scopeModels": False, "disableDefaultAgents": False,
        "toolDescriptionMode": "full", "abortResendKey": "f9",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_what_is_set_is_written_to_the_projects_file_and_never_to_pis(project: Project) -> None:
    theirs = write(project, ".pi/agent/subagents.json", '{"maxConcurrent": 16}', home=True)
    assert project.retinue("settings", "get", "maxConcurrent").stdout.strip() == "16"
    assert project.retinue("settings", "set", "--project", "maxConcurrent", "7").returncode == 0
    assert project.retinue("settings", "get", "maxConcurrent").stdout.strip() == "7"
    assert theirs.read_text() == '{"maxConcurrent": 16}'


def test_a_stopped_or_aborted_agent_reports_what_it_has_as_incomplete(project: Project, serve: Any) -> None:
    write(project, AGENT, "---\ndescription: d\nmax_turns: 1\n" + BODY)
    settings(project, graceTurns=1)

    def answer(request: Request) -> Reply:
        if is_child(request):
            return Reply(f"Half {request.turn}.", [("read", {"path": f"f{request.turn}.txt"})])
        return calling_agent("helper")(request)

    server = serve(answer)
    delegate(project)
    heard = told(server)
    assert heard.startswith("Agent aborted:") and "Half" in heard
    assert "partial" in heard.lower() or "incomplete" in heard.lower()
