"""What an agent's own file says, in real runs of the real program: a limit that cannot be read
refuses the launch, and whatever else is wrong with the file is said."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest

from retinue import Retinue, tool
from retinue.errors import LaunchError
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request


def agent(project: Project, path: str, head: str, body: str = "You work with care. Do what the task says.") -> None:
    target = project.cwd / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"---\n{head}\n---\n{body}\n")


def offered(request: Request) -> set[str]:
    return {tool["name"] for tool in request.body.get("tools", ())}


def call(name: str, **arguments: Any) -> Any:
    def answer(request: Request) -> Reply:
        return Reply(calls=[(name, arguments)]) if request.turn == 0 else Reply(text="done")

    return answer


@pytest.mark.parametrize("value", ["worktre", "true", "remote", "", "5"])
def test_an_isolation_that_cannot_be_read_never_works_in_the_main_checkout(
    project: Project, serve: Any, value: str
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project.cwd, check=True)
    server = serve(call("write", path="made.txt", content="x"))
    agent(project, ".pi/agents/iso.md", f"description: d\ntools: read, write\nisolation: {value}")
    done = project.retinue("run", "iso", "write it")
    assert done.returncode == 2
    assert f"{project.cwd}/.pi/agents/iso.md:4: 'isolation': " in done.stderr
    assert "Write 'isolation: worktree'" in done.stderr or "remove the key" in done.stderr
    assert not (project.cwd / "made.txt").exists()
    assert server.requests == []


@pytest.mark.parametrize("folder", [".claude/agents", ".pi/agents", ".retinue/agents", ".codingcode/agents"])
def test_tools_without_a_value_sends_no_tools(project: Project, serve: Any, folder: str) -> None:
    server = serve(lambda request: Reply(text="done"))
    agent(project, f"{folder}/none.md", "name: none\ndescription: d\ntools:")
    done = project.retinue("run", "none", "go")
    assert done.returncode == 0, done.stderr
    assert offered(server.requests[0]) == set()
    assert "'tools' has no value, so the agent has no tools" in done.stderr


@pytest.mark.parametrize("head", ["tools: 5", "tools: Read\ntools: Bash", "disallowedTools: writ, bsh"])
def test_tools_that_cannot_be_read_refuse_the_launch_and_say_why(project: Project, serve: Any, head: str) -> None:
    serve(lambda request: Reply(text="done"))
    agent(project, ".claude/agents/odd.md", f"name: odd\ndescription: d\n{head}")
    done = project.retinue("run", "odd", "go", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["details"]["error"]
    assert error["code"] == "INVALID_INPUT"
    assert ".claude/agents/odd.md:" in error["message"]


@pytest.mark.parametrize("head", ["tools: 5", 'tools: "~"', "isolation: worktre"])
def test_a_refused_file_has_one_code_and_one_exit_code_in_every_form_of_output(
    project: Project, serve: Any, head: str
) -> None:
    server = serve(lambda request: Reply(text="done"))
    agent(project, ".claude/agents/odd.md", f"name: odd\ndescription: d\n{head}")
    document = project.retinue("run", "odd", "go", "--json")
    line = project.retinue("run", "odd", "go", "--mode", "json")
    summary = project.retinue("-p", "go", "--agent", "odd", "--output-format", "json")
    assert [document.returncode, line.returncode, summary.returncode] == [2, 2, 2]
    assert json.loads(document.stdout)["details"]["error"]["code"] == "INVALID_INPUT"
    assert json.loads(line.stdout)["failure"]["kind"] == "INVALID_INPUT"
    assert json.loads(summary.stdout)["error"]["code"] == "INVALID_INPUT"
    assert server.requests == []


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        (".retinue/agents/lost.md", "---\ndescription: d\nbudget: lots\n---\nWork.\n", 3),
        (".retinue/agents/lost.md", "---\ndescription: d\n", 1),
        (".claude/agents/lost.md", "---\nname: lost\ndescription: d\n", 1),
    ],
)
def test_a_refused_or_broken_file_is_named_by_whoever_asks_for_its_agent(
    project: Project, path: str, text: str, line: int
) -> None:
    target = project.cwd / path
    target.parent.mkdir(parents=True)
    target.write_text(text)
    done = project.retinue("run", "lost", "go")
    assert done.returncode == 2
    assert f"{target}:{line}: " in done.stderr


def test_a_bad_entry_of_the_agents_option_is_named(project: Project) -> None:
    done = project.retinue("run", "--agents", '{"lost": {"description": "d", "prompt": "p", "tools": 5}}', "lost", "go")
    assert done.returncode == 2
    assert "--agents#lost" in done.stderr
    assert "'tools'" in done.stderr
    done = project.retinue("run", "--agents", '{"lost": 5}', "lost", "go")
    assert "The agent 'lost' is not an object." in done.stderr


def test_an_entry_of_the_agents_option_without_a_prompt_is_said(project: Project, serve: Any) -> None:
    serve(lambda request: Reply(text="done"))
    done = project.retinue("run", "--agents", '{"mute": {"description": "d"}}', "mute", "go")
    assert done.returncode == 0
    assert "--agents#mute: It has no prompt." in done.stderr


def test_a_schema_that_cannot_be_used_is_refused_with_the_file_it_stands_in(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(text="done"))
    agent(project, ".retinue/agents/odd.md", "description: d\noutput_schema: {type: 7}")
    (project.cwd / "odd.json").write_text('{"type": 7}')
    done = project.retinue("run", "odd", "go")
    assert done.returncode == 2 and f"agent 'odd' in {project.cwd}/.retinue/agents/odd.md" in done.stderr
    done = project.retinue("run", "Explore", "go", "--schema", "odd.json")
    assert done.returncode == 2 and "The schema odd.json cannot be used" in done.stderr
    assert server.requests == []


def test_an_agents_option_that_says_a_key_twice_is_refused(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(text="done"))
    twice = '{"lost": {"description": "d", "prompt": "p", "tools": ["Read"], "tools": ["Bash"]}}'
    done = project.retinue("run", "--agents", twice, "lost", "go")
    assert done.returncode == 2
    assert "'tools' stands twice" in done.stderr
    assert server.requests == []


@pytest.mark.parametrize("folder", [".claude", ".retinue"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"permisions": {"deny": ["Bash"]}}', "permisions is not a setting; did you mean permissions?"),
        ('{"permissions": {"dney": ["Bash"]}}', "permissions.dney is not a setting; did you mean permissions.deny?"),
        ('{"deny": ["Bash"]}', "deny is not a setting; did you mean permissions.deny?"),
        (
            '{"settings": {"permissions": {"deny": ["Bash"]}}}',
            "settings is not a setting, and permissions has no effect in it",
        ),
        ('{"permissions": {"deny": ["Bash"]}, "permissions": {}}', "permissions stands twice in one object"),
        ('{"permissions": {"deny": ["Bash"], "deny": []}}', "deny stands twice in one object"),
    ],
)
def test_rules_that_would_not_count_refuse_in_whichever_settings_file_they_are(
    project: Project, serve: Any, folder: str, text: str, said: str
) -> None:
    server = serve(lambda request: Reply(text="done"))
    settings = project.cwd / folder / "settings.json"
    settings.parent.mkdir()
    settings.write_text(text)
    done = project.retinue("run", "Explore", "go")
    assert done.returncode != 0 and server.requests == []
    assert str(settings) in done.stderr and said in done.stderr
    assert ".." not in done.stderr and "?." not in done.stderr
    assert said in project.retinue("doctor").stdout


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".claude/settings.json", '{"Hooks": {"PreToolUse": [{"command": "exit 2"}]}}'),
        (".claude/settings.json", '{"hooks": {"hooks": {"PreToolUse": [{"command": "exit 2"}]}}}'),
        (".codingcode/hooks.yaml", "hook:\n- {point: tool.execute.before, command: 'false'}\n"),
        (".pi/agents/w.md", "---\ndescription: d\nhooks: {PreToolUse: [{command: exit 2}]}\n---\nWork.\n"),
        (".claude/agents/w.md", "---\nname: w\ndescription: d\nhook: {PreToolUse: [{command: exit 2}]}\n---\nWork.\n"),
    ],
)
def test_guards_under_a_key_that_nothing_reads_refuse_the_launch(
    project: Project, serve: Any, path: str, text: str
) -> None:
    server = serve(call("write", path="made.txt", content="x"))
    (project.cwd / path).parent.mkdir(parents=True)
    (project.cwd / path).write_text(text)
    done = project.retinue("run", "w" if "agents" in path else "general-purpose", "go", "--trust")
    assert done.returncode != 0 and server.requests == []
    assert path in done.stderr and not (project.cwd / "made.txt").exists()


WARNED = "name: warned\ndescription: d\nmemory: everything\ndisallowedTools: NoSuchTool\ncolour: red"


def test_a_run_says_each_problem_of_its_file_once(project: Project, serve: Any) -> None:
    serve(lambda request: Reply(text="done"))
    agent(project, ".claude/agents/warned.md", WARNED)
    done = project.retinue("run", "warned", "go")
    assert done.returncode == 0
    assert done.stderr.count("warned.md:4: 'memory': ") == 1
    denied = "Retinue has no tool 'NoSuchTool'; unless a plugin brings it, it denies nothing."
    assert done.stderr.count(f"warned.md:5: {denied}") == 1
    assert done.stderr.count("warned.md:6: ") == 1
    headless = project.retinue("-p", "go", "--agent", "warned")
    assert headless.stderr.count("warned.md:4: 'memory': ") == 1


def test_parent_and_person_hear_of_the_problems_of_a_childs_file(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if "You work with care" in json.dumps(request.body["system"]):
            return Reply(text="child done")
        arguments = {"prompt": "go", "description": "d", "subagent_type": "warned", "run_in_background": False}
        return Reply(calls=[("Agent", arguments)]) if request.turn == 0 else Reply(text="main done")

    server = serve(answer)
    agent(project, ".claude/agents/warned.md", WARNED)
    done = project.retinue("-p", "go")
    assert done.returncode == 0
    assert "warned.md:4: 'memory': " in done.stderr
    told = json.dumps(server.requests[-1].results)
    assert told.count("'memory': ") == 1


@pytest.mark.parametrize("text", ["---\nname: bound\ndescription: d\ntools: 5\n---\nWork.\n", "---\nname: bound\n"])
def test_a_model_that_asks_for_a_refused_agent_gets_no_other_in_its_place(
    project: Project, serve: Any, text: str
) -> None:
    arguments = {"prompt": "go", "description": "d", "subagent_type": "bound", "run_in_background": False}
    server = serve(call("Agent", **arguments))
    target = project.cwd / ".claude/agents/bound.md"
    target.parent.mkdir(parents=True)
    target.write_text(text)
    project.retinue("-p", "go")
    assert "bound" not in json.dumps([tool for tool in server.requests[0].body["tools"] if tool["name"] == "Agent"])
    assert "bound.md:" in json.dumps(server.requests[-1].results)
    assert len(server.requests) == 2


PERMISSION = """description: d
permission:
  bash: {"*": deny, "git status*": allow, "echo *": ask}
  edit: ask"""


@pytest.mark.parametrize(
    ("command", "made"),
    [("touch made.txt", False), ("git status", True), ("git status; touch made.txt", False), ("echo x", False)],
)
def test_an_opencode_permission_map_binds_the_run(project: Project, serve: Any, command: str, made: bool) -> None:
    """`ask` is a no where nobody can be asked, even in the freest mode."""
    subprocess.run(["git", "init", "-q"], cwd=project.cwd, check=True)
    server = serve(call("bash", command=command))
    agent(project, ".opencode/agent/perm.md", PERMISSION)
    project.retinue("run", "perm", "go")
    (result,) = server.requests[-1].results
    assert result.get("is_error", False) is not made
    assert not (project.cwd / "made.txt").exists()


def test_an_edit_that_the_map_wants_asked_is_not_made_unasked(project: Project, serve: Any) -> None:
    server = serve(call("write", path="made.txt", content="x"))
    agent(project, ".opencode/agent/perm.md", PERMISSION)
    project.retinue("run", "perm", "go", env={"RETINUE_PERMISSIONS_DEFAULT_MODE": "acceptEdits"})
    (result,) = server.requests[-1].results
    assert result["is_error"]
    assert not (project.cwd / "made.txt").exists()


def test_a_shell_still_sees_the_project_where_the_map_wants_every_edit_asked(project: Project, serve: Any) -> None:
    server = serve(call("bash", command="cat f0.txt"))
    agent(project, ".opencode/agent/perm.md", "description: d\npermission:\n  edit: ask")
    project.retinue("run", "perm", "go", env={"RETINUE_PERMISSIONS_DEFAULT_MODE": "default"})
    (result,) = server.requests[-1].results
    assert "alpha 0" in result["content"]


def test_children_are_bound_by_the_permission_map_above_them(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if "You work with care" in json.dumps(request.body["system"]):
            arguments = {"prompt": "go", "description": "d", "subagent_type": "general-purpose"}
            arguments |= {"run_in_background": False}
            return Reply(calls=[("Agent", arguments)]) if request.turn == 0 else Reply(text="done")
        return Reply(calls=[("bash", {"command": "touch made.txt"})]) if request.turn == 0 else Reply(text="done")

    serve(answer)
    head = 'description: d\npermission: {bash: {"*": allow, "touch *": deny}}\nallowed_subagents: all'
    agent(project, ".opencode/agent/perm.md", head)
    done = project.retinue("run", "perm", "go")
    assert done.returncode == 0, done.stderr
    assert not (project.cwd / "made.txt").exists()


@pytest.mark.parametrize("state", ["deny", "{'*': deny}", "{'*': deny, 'git *': allow}"])
def test_agents_that_a_coordinator_names_are_bound_by_its_permission_map(
    project: Project, serve: Any, state: str
) -> None:
    """A tool that is denied as a whole is no less denied than one that is denied but for a pattern."""

    def answer(request: Request) -> Reply:
        arguments = {"prompt": "CHILD", "description": "d", "subagent_type": "general-purpose"}
        calls: list[tuple[str, Any]] = [("Agent", arguments | {"run_in_background": False})]
        if "CHILD" in json.dumps(request.body["messages"][0]):
            calls = [("bash", {"command": "touch made.txt"})]
        return Reply(text="done", calls=calls if request.turn == 0 else [])

    server = serve(answer)
    head = f"name: boss\ndescription: d\ntools: Agent(general-purpose)\npermission: {{bash: {state}}}"
    agent(project, ".claude/agents/boss.md", head)
    assert project.retinue("run", "boss", "go").returncode == 0
    assert any("CHILD" in json.dumps(each.body["messages"][0]) for each in server.requests)
    assert not (project.cwd / "made.txt").exists()


def test_a_child_that_loses_tools_to_the_file_above_it_is_noted_and_the_parent_is_told(
    project: Project, serve: Any
) -> None:
    def answer(request: Request) -> Reply:
        if "CHILD" in json.dumps(request.body["messages"][0]) or request.turn:
            return Reply(text="done")
        arguments = {"prompt": "CHILD", "description": "d", "subagent_type": "general-purpose"}
        return Reply(calls=[("Agent", arguments | {"run_in_background": False})])

    server = serve(answer)
    agent(project, ".claude/agents/boss.md", "name: boss\ndescription: d\ntools: Agent\ndisallowedTools: Write, Bash")
    assert project.retinue("run", "boss", "go").returncode == 0
    assert "write, bash are withheld: denied by the file of an agent above it" in json.dumps(
        server.requests[-1].results
    )


SEVEN = {"read", "bash", "edit", "write", "grep", "find", "ls"}


@pytest.mark.parametrize("head", ["isolated: true", "extensions: false", "isolated: true\nskills: style"])
def test_an_isolated_agent_of_pi_has_the_seven_tools_and_no_skills(project: Project, serve: Any, head: str) -> None:
    server = serve(lambda request: Reply(text="done"))
    skill = project.cwd / ".pi/skills/style/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: style\ndescription: House style.\n---\nWrite like Hemingway.\n")
    agent(project, ".pi/agents/plain.md", f"description: d\n{head}")
    done = project.retinue("run", "plain", "go")
    assert done.returncode == 0, done.stderr
    assert offered(server.requests[0]) == SEVEN
    assert "Hemingway" not in json.dumps(server.requests[0].body["system"])


def test_the_library_has_the_problems_of_the_file_in_its_notes(
    project: Project, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(lambda request: Reply(text="done"))
    agent(project, ".claude/agents/warned.md", WARNED)
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)

    async def run() -> tuple[str, ...]:
        async with Retinue(cwd=str(project.cwd)) as retinue:
            return (await (await retinue.spawn("warned", "go")).wait()).notes

    notes = asyncio.run(run())
    assert len([note for note in notes if "warned.md:4: 'memory': " in note]) == 1


def test_the_library_refuses_what_cannot_be_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    agent(project, ".claude/agents/odd.md", "name: odd\ndescription: d\nisolation: worktre")
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)

    async def run() -> None:
        async with Retinue(cwd=str(project.cwd)) as retinue:
            await retinue.spawn("odd", "go")

    with pytest.raises(LaunchError, match=r"odd\.md:4"):
        asyncio.run(run())


def test_a_run_tells_what_replaces_the_file_and_not_that_it_has_no_description(project: Project, serve: Any) -> None:
    serve(lambda request: Reply(text="done"))
    agent(project, ".pi/agents/plain.md", "thinking: low")
    done = project.retinue("run", "plain", "go", "--thinking", "high")
    assert "thinking high replaces low of the file" in done.stderr
    assert "There is no description" not in done.stderr


@pytest.mark.parametrize(
    ("head", "written"),
    [
        ("disallowedTools: Edit(src/**)", {"lib/a.py"}),
        ("disallowedTools: Edit(src/**)\ntools: stamp", {"lib/a.py"}),
        ("disallowedTools: Edit", set()),
        ("disallowedTools: Wri*", set()),
        ("disallowedTools: Bash", {"src/a.py", "lib/a.py"}),
        ("disallowedTools: Edit\ntools: stamp", {"src/a.py", "lib/a.py"}),
        ("permission: {edit: deny}", set()),
        ("permission: {stamp: allow, edit: deny}", {"src/a.py", "lib/a.py"}),
    ],
)
def test_a_file_denies_the_effect_of_a_tool_that_it_does_not_name(
    project: Project, serve: Any, head: str, written: set[str]
) -> None:
    """A file that names the tool itself decides about it, as long as no pattern of calls is denied."""

    @tool(effects=["write"], paths=["where"])
    def stamp(where: str) -> str:
        "Write a stamp into a file."
        (project.cwd / where).write_text("stamped")
        return "stamped"

    for folder in ("src", "lib"):
        (project.cwd / folder).mkdir()
    calls = [("stamp", {"where": "src/a.py"}), ("stamp", {"where": "lib/a.py"})]
    serve(lambda request: Reply(text="done", calls=calls if request.turn == 0 else []))
    agent(project, ".claude/agents/limited.md", f"name: limited\ndescription: d\n{head}")

    async def run() -> None:
        async with Retinue(project.cwd, environment=project.environment, tools=[stamp]) as retinue:
            await (await retinue.spawn("limited", "go")).wait()

    asyncio.run(run())
    made = {path.relative_to(project.cwd).as_posix() for path in project.cwd.glob("*/a.py")}
    assert made == written
