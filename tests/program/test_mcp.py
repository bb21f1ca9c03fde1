"""MCP servers in real runs of the real program: which agent has which tools, and what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

SERVERS = Path(__file__).parent.parent / "capabilities" / "mcp"


def sdk(**env: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "sdk_server.py"), "stdio"], "env": env}


def light(**env: str) -> dict[str, Any]:
    """One that starts at once, for tests that are about who gets which tools."""
    return {"command": sys.executable, "args": [str(SERVERS / "raw_server.py"), "names=add,crash,whoami"], "env": env}


def configure(project: Project, servers: dict[str, Any], **settings: Any) -> None:
    folder = project.home / ".retinue"
    folder.mkdir(exist_ok=True)
    allow = [f"mcp__{name}" for name in servers] + ["mcp__sdk"]
    timeouts = {"startTimeoutSeconds": 60}
    data = {"mcpServers": servers, "mcp": timeouts, "permissions": {"allow": allow}, **settings}
    (folder / "settings.json").write_text(json.dumps(data))


def agent(project: Project, name: str, head: str, folder: str = ".claude/agents") -> None:
    path = project.cwd / folder / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: A test agent.\n{head}---\nYou work.\n")


def offered(request: Request) -> set[str]:
    return {tool["name"] for tool in request.body.get("tools", ())}


def served(request: Request) -> set[str]:
    return {name for name in offered(request) if name.startswith("mcp__")}


def text_of(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def test_tools_that_do_not_follow_the_protocol_do_not_cost_the_whole_server(project: Project, serve: Any) -> None:
    server = serve(once("mcp__lax__untyped", {"a": "x"}))
    configure(project, {"lax": {"command": sys.executable, "args": [str(SERVERS / "raw_server.py"), "lax"]}})
    agent(project, "worker", "mcpServers:\n  - lax\n")
    for attempt in ("asked", "remembered"):
        done = project.retinue("run", "worker", "go", "--trust", "--json")
        (result,) = json.loads(done.stdout)["details"]["results"]
        notes = "\n".join(result["notes"])
        assert "MCP server 'lax': 'texty' is left out: its inputSchema does not follow" in notes, attempt
        assert "'wordy' is left out" in notes and "tool number 6 has no name" in notes
        assert "'slow': it is left out: it can only be called as a task" in notes
        assert "correct it in the server" in notes
    assert served(server.requests[0]) == {"mcp__lax__echo", "mcp__lax__untyped", "mcp__lax__bare"}
    (schema,) = [tool for tool in server.requests[0].body["tools"] if tool["name"] == "mcp__lax__untyped"]
    assert schema["input_schema"] == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert '"a": "x"' in text_of(server.requests[1].results[0])


def once(name: str, arguments: dict[str, Any], then: str = "done") -> Any:
    def answer(request: Request) -> Reply:
        return Reply(calls=[(name, arguments)]) if request.turn == 0 else Reply(text=then)

    return answer


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def gone(*pids: int) -> bool:
    """Whether all of them are gone, or are soon."""
    deadline = time.monotonic() + 20
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def starts(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_an_agent_without_a_list_has_the_servers_tools_and_nothing_is_left(project: Project, serve: Any) -> None:
    log = project.cwd / "starts"
    configure(project, {"sdk": sdk(STARTS=str(log))})
    agent(project, "worker", "")
    server = serve(once("mcp__sdk__add", {"a": 20, "b": 22}))
    finished = project.retinue("run", "worker", "Add.", "--json")
    done = json.loads(finished.stdout)
    assert done["details"]["results"][0]["status"] == "completed", done
    assert "Traceback" not in finished.stderr and "never retrieved" not in finished.stderr, finished.stderr
    assert {"mcp__sdk__add", "mcp__sdk__crash"} <= served(server.requests[0])
    assert text_of(server.requests[-1].results[0]) == "42"
    assert len(starts(log)) == 1
    assert gone(*starts(log))


def test_a_list_of_tools_has_only_what_it_names(project: Project, serve: Any) -> None:
    log = project.cwd / "starts"
    configure(project, {"sdk": light(STARTS=str(log)), "other": light()})
    agent(project, "plain", "tools: Read, Grep\n")
    agent(project, "exact", "tools: Read, mcp__sdk__add\n")
    agent(project, "whole", "tools: mcp__sdk\ndisallowedTools: mcp__sdk__crash\n")
    agent(project, "alias", "tools: read, 'sdk:add'\n", ".retinue/agents")
    server = serve(lambda request: Reply(text="done"))
    found: dict[str, set[str]] = {}
    for name in ("plain", "exact", "whole", "alias"):
        server.requests.clear()
        project.json("run", name, "Go.", "--json")
        found[name] = served(server.requests[0])
        if name == "plain":
            assert not starts(log), "an agent that cannot use a server does not start it"
    assert found["plain"] == set()
    assert found["exact"] == found["alias"] == {"mcp__sdk__add"}
    assert "mcp__sdk__add" in found["whole"] and "mcp__sdk__crash" not in found["whole"]
    assert all(name.startswith("mcp__sdk__") for name in found["whole"])


def test_naming_servers_really_filters(project: Project, serve: Any) -> None:
    """CodingCode connected what a profile named, and showed every server's tools."""
    configure(project, {"sdk": light(), "other": light()})
    agent(project, "named", "mcpServers:\n  - sdk\n")
    agent(project, "none", "mcpServers: []\n")
    agent(project, "denied", "disallowedTools: mcp__*\n")
    agent(project, "coding", "tools: [read_file]\nmcpServers: [other]\n", ".codingcode/agents")
    server = serve(lambda request: Reply(text="done"))
    found: dict[str, set[str]] = {}
    for name in ("named", "none", "denied", "coding"):
        server.requests.clear()
        project.json("run", name, "Go.", "--json")
        found[name] = {tool.split("__")[1] for tool in served(server.requests[0])}
    assert found == {"named": {"sdk"}, "none": set(), "denied": set(), "coding": {"other"}}


def test_servers_that_rules_cannot_tell_apart_are_left_out_and_said(project: Project, serve: Any) -> None:
    configure(project, {"my.tools": light(), "my_tools": light(), "my__tools": light()})
    agent(project, "worker", "")
    server = serve(lambda request: Reply(text="done"))
    run_id = project.json("run", "worker", "Go.", "--json")["details"]["runId"]
    assert served(server.requests[0]) == {f"mcp__my_tools__{name}" for name in ("add", "crash", "whoami")}
    told = " ".join(project.retinue("runs", "show", run_id).stdout.split())
    assert "MCP server 'my_tools' is left out: its tools would have the names of those of 'my.tools'" in told
    assert "'my__tools'" in told and "rules could not tell its tools" in told


def test_an_isolated_agent_has_no_servers(project: Project, serve: Any) -> None:
    log = project.cwd / "starts"
    configure(project, {"sdk": light(STARTS=str(log))})
    agent(project, "alone", "isolated: true\n", ".pi/agents")
    server = serve(lambda request: Reply(text="done"))
    project.json("run", "alone", "Go.", "--json")
    assert not served(server.requests[0])
    assert not starts(log)


def test_pi_selectors_narrow_the_tools_of_servers(project: Project, serve: Any) -> None:
    configure(project, {"sdk": light(), "other": light()})
    agent(project, "all", "tools: read\nprompt_mode: replace\n", ".pi/agents")
    agent(project, "one", "tools: read, ext:sdk/add\nprompt_mode: replace\n", ".pi/agents")
    agent(project, "off", "extensions: false\n", ".pi/agents")
    agent(project, "only", "tools: none\nextensions: [other]\n", ".pi/agents")
    server = serve(lambda request: Reply(text="done"))
    found: dict[str, set[str]] = {}
    for name in ("all", "one", "off", "only"):
        server.requests.clear()
        done = project.json("run", name, "Go.", "--json")
        assert server.requests, done
        found[name] = served(server.requests[0])
    assert {tool.split("__")[1] for tool in found["all"]} == {"sdk", "other"}
    assert found["one"] == {"mcp__sdk__add"}
    assert found["off"] == set()
    assert {tool.split("__")[1] for tool in found["only"]} == {"other"}


@pytest.mark.parametrize(
    ("boss", "expected"),
    [
        ("tools: Agent, write\nmcpServers: [sdk]\n", {"sdk"}),  # its file leaves the other out
        ("tools: Agent, write\ndisallowedTools: mcp__sdk\n", {"other"}),
        ("tools: Agent(child)\n", {"sdk", "other"}),  # its author named the child, whose file decides
        ("tools: Agent\n", set()),  # without a tool that writes: nothing that could change anything
    ],
)
def test_a_child_has_the_servers_of_its_file_that_no_file_above_it_leaves_out(
    project: Project, serve: Any, boss: str, expected: set[str]
) -> None:
    configure(project, {"sdk": light(), "other": light()})
    agent(project, "boss", boss)
    agent(project, "child", "")

    def answer(request: Request) -> Reply:
        if "Agent" in offered(request) and request.turn == 0:
            call = {"subagent_type": "child", "prompt": "Work.", "description": "work", "run_in_background": False}
            return Reply(calls=[("Agent", call)])
        return Reply(text="done")

    server = serve(answer)
    project.json("run", "boss", "Delegate.", "--json")
    below = [request for request in server.requests if "Agent" not in offered(request)]
    assert below, "the child has run"
    assert {tool.split("__")[1] for tool in served(below[0])} == expected


def test_servers_on_the_command_line(project: Project) -> None:
    configure(project, {"light": light(TOKEN="s3cret-value"), "broken": {"command": "no-such-program-anywhere"}})
    folder = project.cwd / ".retinue"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"mcpServers": {"theirs": light()}}))
    (project.cwd / ".mcp.json").write_text("{broken")
    told = project.json("servers", "list", "--json")
    by_name = {server["name"]: server for server in told["servers"]}
    assert set(by_name) == {"light", "broken"}, "an untrusted settings file brings none"
    assert by_name["light"]["tools"] is None
    assert len(told["problems"]) == 1 and ".mcp.json" in told["problems"][0]
    checked = project.retinue("servers", "check", "--json")
    assert checked.returncode == 1
    assert "s3cret-value" not in checked.stdout
    found = {server["name"]: server for server in json.loads(checked.stdout)["servers"]}
    assert [tool["name"] for tool in found["light"]["tools"]] == ["add", "crash", "whoami"]
    assert found["light"]["works"] and not found["broken"]["works"]
    assert "not found" in found["broken"]["problem"]
    project.retinue("trust", "add")
    told = project.json("servers", "list", "--json")
    by_name = {server["name"]: server for server in told["servers"]}
    assert by_name["theirs"]["trusted"]
    assert by_name["light"]["tools"] == ["add", "crash", "whoami"], "remembered"
    assert project.retinue("servers", "check", "light").returncode == 0
    unknown = project.retinue("servers", "check", "nobody")
    assert unknown.returncode == 2 and "nobody" in unknown.stderr and "light" in unknown.stderr
    for words in (("servers", "--help"), ("servers", "list", "--help"), ("servers", "check", "--help")):
        assert project.retinue(*words).returncode == 0


def test_required_servers_are_checked_before_the_run_exists(project: Project, serve: Any) -> None:
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence')"]}
    configure(project, {"broken": broken, "absent": {"command": "no-such-program-anywhere"}})
    agent(project, "unknown", "requiredMcpServers: [github]\n")
    agent(project, "fails", "requiredMcpServers: [broken]\n")
    agent(project, "missing", "requiredMcpServers: ['abs*']\n")
    server = serve(lambda request: Reply(text="done"))
    for name, words in (
        ("unknown", ("github", "not configured")),
        ("fails", ("broken", "no licence")),
        ("missing", ("absent", "no-such-program-anywhere")),
    ):
        done = project.retinue("run", name, "Go.")
        assert done.returncode == 1, done.stderr
        assert all(word in done.stderr for word in words), done.stderr
    assert not server.requests
    assert project.json("runs", "list", "--json")["runs"] == []


def test_a_server_that_is_not_required_does_not_stop_a_run(project: Project, serve: Any) -> None:
    hung = {"command": "sleep", "args": ["600"]}
    configure(project, {"sdk": light(), "hung": hung, "gone": {"command": "no-such-program-anywhere"}, "bad": 5})
    settings = project.home / ".retinue" / "settings.json"
    data = json.loads(settings.read_text())
    settings.write_text(json.dumps({**data, "mcp": {"startTimeoutSeconds": 8}}))
    agent(project, "worker", "")
    server = serve(lambda request: Reply(text="done"))
    done = project.json("run", "worker", "Go.", "--json")
    assert done["details"]["results"][0]["status"] == "completed"
    assert "mcp__sdk__add" in served(server.requests[0])
    run_id = done["details"]["runId"]
    told = project.retinue("runs", "show", run_id).stdout
    for name in ("hung", "gone", "bad"):
        assert f"'{name}'" in told, told


def test_a_tool_that_appears_late_is_there_from_the_next_turn_on(project: Project, serve: Any) -> None:
    configure(project, {"sdk": sdk()})
    agent(project, "worker", "")
    agent(project, "narrow", "disallowedTools: mcp__sdk__grown\n")

    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("mcp__sdk__grow", {})])
        if "mcp__sdk__grown" in offered(request) and request.turn < 6:
            return Reply(calls=[("mcp__sdk__grown", {"word": "hello"})]) if request.turn < 5 else Reply(text="done")
        return Reply(calls=[("mcp__sdk__slow", {"path": os.devnull})]) if request.turn < 5 else Reply(text="done")

    server = serve(answer)
    project.json("run", "worker", "Go.", "--json")
    first, last = server.requests[0], server.requests[-1]
    assert "mcp__sdk__grown" not in served(first)
    assert "mcp__sdk__grown" in served(last)
    assert "grown says hello" in [text_of(result) for result in last.results]
    names = [[tool["name"] for tool in request.body["tools"]] for request in (first, last)]
    assert names[1][: len(names[0])] == names[0], "what was offered first keeps its place"
    server.requests.clear()
    project.json("run", "narrow", "Go.", "--json")
    assert "mcp__sdk__grown" not in served(server.requests[-1])


def test_project_servers_need_consent(project: Project, serve: Any) -> None:
    log = project.cwd / "starts"
    configure(project, {})
    (project.cwd / ".mcp.json").write_text(json.dumps({"mcpServers": {"sdk": light(STARTS=str(log))}}))
    agent(project, "worker", "")
    agent(project, "needy", "requiredMcpServers: [sdk]\n")
    server = serve(lambda request: Reply(text="done"))
    done = project.json("run", "worker", "Go.", "--json")
    assert not served(server.requests[0])
    assert not starts(log)
    assert "not trusted" in project.retinue("runs", "show", done["details"]["runId"]).stdout
    refused = project.retinue("run", "needy", "Go.")
    assert refused.returncode == 1
    assert "not trusted" in refused.stderr
    assert not starts(log)
    from retinue.guard.trust import Trust

    path = project.cwd / ".mcp.json"
    Trust(project.home / ".retinue").grant(path, path.read_bytes())
    server.requests.clear()
    project.json("run", "worker", "Go.", "--json")
    assert "mcp__sdk__add" in served(server.requests[0])


def test_inline_servers_are_the_runs_own(project: Project, serve: Any) -> None:
    log = project.cwd / "starts"
    configure(project, {})
    inline = {"mcpServers": [{"mine": light(STARTS=str(log))}]}
    folder = project.home / ".claude" / "agents"
    folder.mkdir(parents=True)
    head = json.dumps(inline["mcpServers"])
    (folder / "own.md").write_text(f"---\nname: own\ndescription: Has a server.\nmcpServers: {head}\n---\nWork.\n")
    (project.home / ".retinue" / "settings.json").write_text('{"permissions": {"allow": ["mcp__mine"]}}')
    server = serve(once("mcp__mine__whoami", {}))
    project.json("run", "own", "Go.", "--json")
    assert {name.split("__")[1] for name in served(server.requests[0])} == {"mine"}
    assert gone(*starts(log))


def test_kill_9_leaves_no_server(project: Project, serve: Any) -> None:
    log, left = project.cwd / "starts", project.cwd / "daemon"
    configure(project, {"sdk": sdk(STARTS=str(log))})
    agent(project, "worker", "")

    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("mcp__sdk__daemon", {"path": str(left)})])
        return Reply(calls=[("mcp__sdk__hang", {})])

    serve(answer)
    process = project.start("run", "worker", "Go.")
    deadline = time.monotonic() + 60
    while not (left.exists() and left.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [*starts(log), int(left.read_text())]
    assert all(map(alive, pids))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert gone(*pids)


@pytest.mark.slow
def test_a_crash_in_a_call_is_a_result_and_the_next_call_works(project: Project, serve: Any) -> None:
    log = project.cwd / "starts"
    configure(project, {"sdk": sdk(STARTS=str(log))})
    agent(project, "worker", "")

    def answer(request: Request) -> Reply:
        calls = [("mcp__sdk__crash", {}), ("mcp__sdk__add", {"a": 2, "b": 3}), ("mcp__sdk__noise", {"lines": 50})]
        return Reply(calls=[calls[request.turn]]) if request.turn < 3 else Reply(text="done")

    server = serve(answer)
    project.json("run", "worker", "Go.", "--json")
    crashed, added, noisy = (text_of(result) for result in server.requests[-1].results)
    assert "was lost during the call" in crashed and "about to crash" in crashed
    assert (added, noisy) == ("5", "said a lot")
    assert len(starts(log)) == 2
    assert gone(*starts(log))


def test_servers_that_a_claude_file_names_give_their_tools_beside_its_list(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(text="done"))
    configure(project, {"named": light(), "other": light()})
    agent(project, "listed", "tools: Read\nmcpServers: [named]\n")
    assert project.retinue("run", "listed", "go").returncode == 0
    assert served(server.requests[0]) == {"mcp__named__add", "mcp__named__crash", "mcp__named__whoami"}


def test_a_list_that_names_a_tool_of_a_server_gets_no_other_of_it(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(text="done"))
    configure(project, {"named": light()})
    agent(project, "narrow", 'tools: [read_file, "named:add"]\nmcpServers: [named]\n', ".codingcode/agents")
    agent(project, "narrowed", "tools: Read, mcp__named__add\nmcpServers: [named]\n")
    for name in ("narrow", "narrowed"):
        assert project.retinue("run", name, "go").returncode == 0
    assert [served(request) for request in server.requests] == [{"mcp__named__add"}] * 2


def test_tools_of_servers_that_a_read_only_agent_does_not_get_are_said(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(text="done"))
    configure(project, {"named": light()})
    agent(project, "looks", "readonly: true\n")
    done = project.retinue("run", "looks", "go")
    assert served(server.requests[0]) == set()
    assert "mcp__named__add, mcp__named__crash, mcp__named__whoami are withheld: the agent is read-only" in done.stderr


def test_a_tool_whose_parameters_no_provider_accepts_is_offered_and_called_as_its_server_wants_it(project, serve):
    """Root anyOf (claude-code#40075) and argument names (claude-code#79418) made every request a 400."""
    odd = {"command": sys.executable, "args": [str(SERVERS / "raw_server.py"), "odd"]}
    configure(project, {"odd": odd})
    server = serve(once("mcp__odd__echo", {"_filter": "name eq 1"}))
    done = project.retinue("-p", "go", "--output-format", "json")
    assert done.returncode == 0, done.stderr
    (tool,) = [tool for tool in server.requests[0].body["tools"] if tool["name"] == "mcp__odd__echo"]
    assert set(tool["input_schema"]["properties"]) == {"_filter", "content"}
    assert "anyOf" not in tool["input_schema"]
    assert "at least one of these sets of arguments: (_filter) or (content)" in tool["description"]
    (result,) = server.requests[1].results
    assert json.loads(text_of(result)) == {"$filter": "name eq 1"}, "the server hears its own name"


def test_opencode_names_a_servers_tools_with_one_mark(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(text="done"))
    configure(project, {"named": light()})
    agent(project, "one", "tools: {read: true, named_add: true}\n", ".opencode/agent")
    agent(project, "most", "permission: {'named_whoami': deny, 'named_cr*': deny}\n", ".opencode/agent")
    for name in ("one", "most"):
        assert project.retinue("run", name, "go").returncode == 0
    assert [served(request) for request in server.requests] == [{"mcp__named__add"}] * 2
