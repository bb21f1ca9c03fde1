"""Tools that are told by name and loaded by search, in real runs of the real program."""

from __future__ import annotations

import sys
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_mcp import SERVERS, agent, configure, light, offered, once, sdk, served, text_of


def test_a_child_may_load_what_its_parent_may(project: Project, serve: Any) -> None:
    configure(project, {"sdk": light()}, toolSearch={"mode": "always"})
    agent(project, "boss", "disallowedTools: mcp__sdk__crash\n")
    agent(project, "child", "tools: mcp__sdk__add, mcp__sdk__crash, mcp__sdk__*\n")

    def answer(request: Request) -> Reply:
        if "Agent" in offered(request):
            call = {"subagent_type": "child", "prompt": "Work.", "description": "work", "run_in_background": False}
            return Reply(calls=[("Agent", call)]) if request.turn == 0 else Reply(text="done")
        return Reply(calls=[("tool_search", {"query": "mcp__sdk"})]) if request.turn == 0 else Reply(text="done")

    server = serve(answer)
    project.json("-p", "Delegate.", "--agent", "boss", "--output-format", "json")
    below = [request for request in server.requests if "Agent" not in offered(request)]
    assert served(below[0]) == {"mcp__sdk__add"}, "what its file names is there at once"
    assert served(below[-1]) == {"mcp__sdk__add", "mcp__sdk__whoami"}, "never what the parent lacks"


def test_many_tools_are_loaded_by_search(project: Project, serve: Any) -> None:
    many = {"command": sys.executable, "args": [str(SERVERS / "raw_server.py"), "many=40"]}
    configure(project, {"sdk": sdk(), "many": many})
    agent(project, "worker", "")

    def answer(request: Request) -> Reply:
        calls = {
            0: ("tool_search", {"query": "no such thing"}),
            1: ("mcp__sdk__add", {"a": 1, "b": 2}),
            2: ("tool_search", {"query": "ADDS numbers"}),
            3: ("mcp__sdk__add", {"a": 1, "b": 2}),
            4: ("tool_search", {"query": "select:sdk:whoami,mcp__sdk__picture"}),
            5: ("mcp__sdk__picture", {}),
        }
        return Reply(calls=[calls[request.turn]]) if request.turn in calls else Reply(text="done")

    server = serve(answer)
    done = project.json("run", "worker", "Go.", "--json")
    first, last = server.requests[0], server.requests[-1]
    assert served(first) == set()
    told = next(tool for tool in first.body["tools"] if tool["name"] == "tool_search")["description"]
    assert "mcp__sdk__add" in told
    results = [text_of(result) for result in last.results]
    assert results[0] == 'No deferred tools matched "no such thing".'
    assert "mcp__sdk__add is not among your tools: it must be loaded first" in results[1]
    assert "call tool_search with the query select:mcp__sdk__add." in results[1]
    assert results[2].startswith("Loaded 1 tool(s). Their full schemas are now available next turn:\n- mcp__sdk__add: ")
    assert results[3] == "3"
    assert served(last) == {"mcp__sdk__add", "mcp__sdk__whoami", "mcp__sdk__picture"}
    assert any(part["type"] == "image" for part in last.results[5]["content"])
    server.answer = lambda request: Reply(text="again")
    project.retinue("runs", "resume", done["details"]["runId"], "Go on.")
    assert served(server.requests[-1]) == served(last), "what was loaded stays loaded"


def test_search_finds_only_what_the_policy_allows(project: Project, serve: Any) -> None:
    configure(project, {"sdk": light()}, toolSearch={"mode": "always"})
    agent(project, "worker", "disallowedTools: mcp__sdk__crash\n")
    agent(project, "nosearch", "disallowedTools: ToolSearch\n")
    server = serve(once("tool_search", {"query": "crash"}))
    project.json("run", "worker", "Go.", "--json")
    assert text_of(server.requests[-1].results[0]) == 'No deferred tools matched "crash".'
    server.requests.clear()
    server.answer = lambda request: Reply(text="done")
    project.json("run", "nosearch", "Go.", "--json")
    assert "mcp__sdk__crash" in served(server.requests[0])
