"""Whole conversations of an editor with the real program and a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.frontends.acp.conftest import Editor, content_text
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Edit = Callable[..., Editor]
CHANGE = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def two_children(request: Request) -> Reply:
    """The main agent writes a list, starts two agents, changes a file, and ends."""
    if "look for" in said(request)[:120]:
        if request.turn == 0:
            return Reply("I look.", calls=[("grep", {"pattern": "beta"})])
        return Reply("It is in f0.txt.")
    if request.turn == 0:
        todos = [{"content": "find", "status": "in_progress"}, {"content": "change", "status": "pending"}]
        one = {"prompt": "look for alpha", "subagent_type": "Explore", "description": "find alpha"}
        two = {"prompt": "look for beta", "subagent_type": "Explore", "description": "find beta"}
        return Reply("Two look.", calls=[("todo", {"todos": todos}), ("Agent", one), ("Agent", two)])
    if request.turn == 3:
        return Reply("Now I change it.", calls=[CHANGE])
    return Reply("All done.")


def test_initialize_says_what_is_offered(edit: Edit) -> None:
    editor = edit()
    found = editor.initialize()
    assert found["protocolVersion"] == 1
    assert found["agentInfo"]["name"] == "retinue"
    assert found["agentCapabilities"]["loadSession"] is True
    assert [each["id"] for each in found["authMethods"]] == ["models"]
    assert editor.leave()[0] == 0


def test_a_conversation_with_two_children_and_one_session(project: Project, serve: Any, edit: Edit) -> None:
    serve(two_children)
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Change beta") == "end_turn"
    assert (project.cwd / "f0.txt").read_text() == "alpha 0\ngamma\n"
    assert {frame["params"]["sessionId"] for frame in editor.frames if frame.get("method") == "session/update"} == {
        session
    }
    text = editor.text(session)
    assert text.startswith("Two look.") and "Now I change it." in text and text.endswith("All done.")
    calls = editor.calls(session)
    assert {call["status"] for call in calls.values()} == {"completed"}
    agents = [call for call in calls.values() if call["name"] == "Agent"]
    assert [call["title"] for call in agents] == ["Agent find alpha", "Agent find beta"]
    for call in agents:
        shown = content_text(call)
        assert "Explore: find" in shown and "completed" in shown and "1 call" in shown and "It is in f0.txt." in shown
    (changed,) = [call for call in calls.values() if call["name"] == "edit"]
    path = str(project.cwd / "f0.txt")
    assert changed["kind"] == "edit" and changed["locations"] == [{"path": path}]
    assert changed["content"] == [{"type": "diff", "path": path, "oldText": "beta", "newText": "gamma"}]
    (plan,) = editor.updates("plan")
    assert [entry["status"] for entry in plan["entries"]] == ["in_progress", "pending"]
    usage = editor.updates("usage_update")[-1]
    assert usage["size"] == 200_000 and usage["cost"]["amount"] > 0.0004
    assert editor.updates("session_info_update")[0]["title"] == "Change beta"
    commands = {each["name"] for each in editor.updates("available_commands_update")[0]["availableCommands"]}
    assert {"agents", "runs", "cost", "inbox", "compact"} <= commands
