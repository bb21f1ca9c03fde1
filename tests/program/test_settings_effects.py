"""Settings that were dead once: each is seen in what a run does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue import Retinue
from tests.program.conftest import Project
from tests.program.model_server import Reply

WRITER = "---\nname: fixer\ndescription: Fixes.\nreadonly: false\ntools: read, write, bash\n---\nFix things.\n"


def write_agent(project: Project, text: str, name: str = "fixer.md") -> None:
    folder = project.cwd / ".pi/agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def tools_of(request: Any) -> set[str]:
    return {tool["name"] for tool in request.body["tools"]}


def test_an_agent_of_devkit_pi_writes_nothing_without_allow_write(project: Project, serve: Any) -> None:
    write_agent(project, WRITER)
    calls = [("write", {"path": "new.txt", "content": "x"}), ("bash", {"command": "echo x > shell.txt"})]
    server = serve(lambda request: Reply("done", calls=calls if request.turn == 0 else []))
    done = project.retinue("run", "fixer", "go")
    assert "write" not in tools_of(server.requests[0])
    assert not (project.cwd / "new.txt").exists() and not (project.cwd / "shell.txt").exists()
    assert "retinue settings set allowWrite true" in done.stderr


def test_so_does_one_in_a_folder_of_pi_that_may_be_devkits(project: Project, serve: Any) -> None:
    agent = project.cwd / ".pi/agents/fixer.md"
    agent.parent.mkdir(parents=True)
    head = "name: fixer\ndescription: d\n"
    calls = [("write", {"path": "new.txt", "content": "x"})]
    server = serve(lambda request: Reply("done", calls=calls if request.turn == 0 else []))
    for tools in ("tools: read, write\n", ""):
        agent.write_text(f"---\n{head}{tools}---\nFix it.\n")
        done = project.retinue("run", "fixer", "go")
        assert "write" not in tools_of(server.requests[-1]) and not (project.cwd / "new.txt").exists()
        assert "retinue settings set allowWrite true" in done.stderr and "prompt_mode: replace" in done.stderr
    agent.write_text(f"---\n{head}tools: read, grep\n---\nFix it.\n")
    assert "allowWrite" not in project.retinue("run", "fixer", "go").stderr, "it asks for nothing that is held back"
    for key in ("prompt_mode: replace\n", "max_turns: 9\n"):
        agent.write_text(f"---\n{head}tools: read, write\n{key}---\nFix it.\n")
        project.retinue("run", "fixer", "go")
        assert "write" in tools_of(server.requests[-1]), "a key of pi's makes it pi's"


def test_it_has_what_its_file_lists_with_allow_write_and_a_project_needs_consent_to_say_so(
    project: Project, serve: Any
) -> None:
    write_agent(project, WRITER)
    server = serve(lambda request: Reply("done"))
    settings = project.cwd / ".retinue/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"subagents": {"allowWrite": true}}')
    assert project.retinue("run", "fixer", "go").returncode == 0
    assert "write" not in tools_of(server.requests[-1]), "a cloned repository cannot give itself the right"
    settings.unlink()
    assert project.retinue("settings", "set", "allowWrite", "true").returncode == 0
    assert project.retinue("run", "fixer", "go").returncode == 0
    assert {"read", "write", "bash"} <= tools_of(server.requests[-1])


@pytest.mark.parametrize("tool", ["Agent", "subagent"])
def test_the_same_holds_for_an_agent_that_another_agent_starts(project: Project, serve: Any, tool: str) -> None:
    write_agent(project, WRITER)
    arguments: dict[str, Any] = {"agent": "fixer", "task": "CHILD"}
    if tool == "Agent":
        arguments = {"subagent_type": "fixer", "prompt": "CHILD", "description": "d", "run_in_background": False}
    else:
        project.retinue("settings", "set", "delegationVocabulary", "devkit")

    def answer(request: Any) -> Reply:
        mine = "CHILD" in str(request.body["messages"][0])
        return Reply("done", calls=[] if mine or request.turn else [(tool, arguments)])

    server = serve(answer)
    project.retinue("-p", "go")
    (child,) = [each for each in server.requests if "CHILD" in str(each.body["messages"][0])]
    assert "write" not in tools_of(child) and "read" in tools_of(child)


def test_strict_agent_files_refuse_to_start_while_one_cannot_be_loaded(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    write_agent(project, "---\nname: broken\n", "broken.md")
    assert project.retinue("run", "Explore", "go").returncode == 0
    assert project.retinue("settings", "set", "strictAgentFiles", "true").returncode == 0
    for command in (["run", "Explore", "go"], ["-p", "go"]):
        done = project.retinue(*command)
        assert done.returncode == 2
        assert "broken.md" in done.stderr and "strictAgentFiles" in done.stderr
    assert len(server.requests) == 1
    assert project.retinue("agents", "lint").returncode != 0, "what helps to correct it still works"


async def test_a_file_that_breaks_while_a_strict_session_runs_is_only_skipped(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    environment = {**project.environment, "RETINUE_STRICT_AGENT_FILES": "true"}
    async with Retinue(project.cwd, environment=environment) as retinue:
        write_agent(project, "---\nname: broken\n", "broken.md")
        run = await retinue.spawn("Explore", "go")
        assert (await run.wait()).text == "done"


def test_an_agent_that_codingcodes_file_disables_cannot_be_started_by_another(project: Project, serve: Any) -> None:
    config = project.cwd / ".codingcode/config.yaml"
    config.parent.mkdir()
    config.write_text("subagent:\n  disabledAgents: [Plan]\n")
    arguments = {"subagent_type": "Plan", "prompt": "CHILD", "description": "d", "run_in_background": False}
    server = serve(lambda request: Reply("done", calls=[] if request.turn else [("Agent", arguments)]))
    assert project.retinue("-p", "go").returncode == 0
    assert not [each for each in server.requests if "CHILD" in str(each.body["messages"][0])]
    assert str(config) in str(server.requests[-1].results)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("Agent(said)", {"subagent_type": "file"}),
        ("Agent(file)", {"subagent_type": "said"}),
        ("Agent(general-purpose)", {"subagent_type": "nobody"}),
        ("Agent(general-purpose)", {"subagent_type": ""}),
        ("Agent(general-purpose)", {"name": "helper"}),
    ],
)
def test_a_rule_about_an_agent_holds_whatever_name_a_call_gives_it(
    project: Project, serve: Any, rule: str, named: dict[str, str]
) -> None:
    write_agent(project, "---\nname: said\ntools: read\n---\nRead.\n", "file.md")
    (project.home / ".retinue").mkdir()
    (project.home / ".retinue/settings.json").write_text(json.dumps({"permissions": {"deny": [rule]}}))
    arguments = {"prompt": "CHILD", "description": "d", "run_in_background": False, **named}
    server = serve(lambda request: Reply("done", calls=[] if request.turn else [("Agent", arguments)]))
    assert project.retinue("-p", "go").returncode == 0
    assert not [each for each in server.requests if "CHILD" in str(each.body["messages"][0])]
    assert f"The rule {rule} forbids" in str(server.requests[-1].results)


def test_an_agent_that_a_rule_denies_is_not_offered(project: Project, serve: Any) -> None:
    (project.home / ".retinue").mkdir()
    (project.home / ".retinue/settings.json").write_text('{"permissions": {"deny": ["Agent(Plan)"]}}')
    server = serve(lambda request: Reply("done"))
    assert project.retinue("-p", "go").returncode == 0
    (tool,) = [tool for tool in server.requests[0].body["tools"] if tool["name"] == "Agent"]
    assert "- Explore" in tool["description"]
    assert "- Plan" not in tool["description"]


def test_what_a_file_of_pi_gives_needs_consent_as_in_ours(project: Project) -> None:
    file = project.cwd / ".pi/subagents.json"
    file.parent.mkdir()
    file.write_text('{"worktreeIsolation": false, "graceTurns": 9}')
    assert project.json("settings", "get", "worktreeIsolation", "--json")["value"] is True
    assert project.json("settings", "get", "graceTurns", "--json")["value"] == 9
    assert project.retinue("trust", "add", str(file)).returncode == 0
    assert project.json("settings", "get", "worktreeIsolation", "--json")["value"] is False


def test_outside_git_a_model_that_asks_for_a_worktree_hears_why_there_is_none(project: Project, serve: Any) -> None:
    arguments = {"prompt": "CHILD", "description": "d", "isolation": "worktree"}
    server = serve(lambda request: Reply("done", calls=[] if request.turn else [("Agent", arguments)]))
    assert project.retinue("-p", "go").returncode == 0
    said = str(server.requests[-1].results)
    assert "A worktree was asked for, but" in said and "is_error': True" in said
    assert "is not a parameter" not in said


def test_without_scheduling_the_parameter_is_gone_and_a_model_that_sends_it_hears_why(
    project: Project, serve: Any
) -> None:
    project.retinue("settings", "set", "schedulingEnabled", "false")
    arguments = {"prompt": "CHILD", "description": "d", "schedule": "10s"}
    server = serve(lambda request: Reply("done", calls=[] if request.turn else [("Agent", arguments)]))
    assert project.retinue("-p", "go").returncode == 0
    (agent,) = [tool for tool in server.requests[0].body["tools"] if tool["name"] == "Agent"]
    assert "schedule" not in agent["input_schema"]["properties"]
    assert "scheduling is switched off (schedulingEnabled)" in str(server.requests[-1].results)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [("8", "Seconds (default 7.2, at most 7.2)"), ("0", "Seconds (default 120)"), ("", "at most 595)")],
)
def test_the_schema_of_bash_says_how_long_a_call_may_take_under_the_settings(
    project: Project, serve: Any, seconds: str, said: str
) -> None:
    server = serve(lambda request: Reply("done"))
    more = {"RETINUE_TOOL_TIMEOUT_SECONDS": seconds} if seconds else {}
    for _ in range(2):
        assert project.retinue("-p", "go", env=more).returncode == 0
    first, second = [
        next(tool for tool in request.body["tools"] if tool["name"] == "bash") for request in server.requests
    ]
    assert first["input_schema"]["properties"]["timeout"]["description"].endswith(said)
    assert first == second, "requests of the same settings begin alike"
