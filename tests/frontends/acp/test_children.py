"""Agents below the main one in an editor: as child sessions to any depth, or as summaries that are never silent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.frontends.acp.conftest import Editor, content_text
from tests.frontends.acp.test_conversation import two_children
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Edit = Callable[..., Editor]


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def three_deep(request: Request) -> Reply:
    first = said(request)[:120]
    if "deepest task" in first:
        return Reply("from below") if request.turn else Reply(calls=[("read", {"path": "f1.txt"})])
    if "middle task" in first:
        if request.turn == 0:
            call = {"prompt": "deepest task", "subagent_type": "Explore", "description": "deepest"}
            return Reply(calls=[("Agent", call)])
        return Reply("from the middle")
    if request.turn == 0:
        call = {"prompt": "middle task", "subagent_type": "general-purpose", "description": "middle"}
        return Reply("I delegate.", calls=[("Agent", call)])
    return Reply("All done.")


def announced(editor: Editor) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the children by title: the session that announced each, and its first update."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for frame in editor.frames:
        if frame.get("method") == "session/update":
            update = frame["params"]["update"]
            if update["sessionUpdate"] == "subagent_update" and "title" in update:
                found[update["title"]] = (frame["params"]["sessionId"], update)
    return found


def test_children_are_sessions_of_a_client_that_knows_them(project: Project, serve: Any, edit: Edit) -> None:
    serve(two_children)
    editor = edit()
    editor.initialize(subagents={})
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Change beta") == "end_turn"
    children = announced(editor)
    assert set(children) == {"Explore: find alpha", "Explore: find beta"}
    for parent, update in children.values():
        child = update["sessionId"]
        assert parent == session
        assert update["state"] == {"state": "running"} and update["capabilities"] == {"cancel": {}}
        first = next(
            frame["params"]
            for frame in editor.frames
            if frame.get("method") == "session/update" and child in json.dumps(frame["params"])
        )
        assert first["update"]["sessionUpdate"] == "subagent_update", "announced before anything else"
        assert editor.text(child) == "I look.It is in f0.txt."
        assert editor.text(child, "user_message_chunk").startswith("look for")
        (call,) = editor.calls(child).values()
        assert call["kind"] == "search" and call["status"] == "completed"
        states = [each["state"] for each in editor.updates("subagent_update", session) if each["sessionId"] == child]
        assert states[-1] == {"state": "idle", "stopReason": "end_turn"}


def test_a_child_of_a_child_is_announced_by_its_parent(project: Project, serve: Any, edit: Edit) -> None:
    serve(three_deep)
    editor = edit(RETINUE_MAX_DEPTH="3")
    editor.initialize(subagents={})
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Delegate") == "end_turn"
    children = announced(editor)
    middle, deepest = children["general-purpose: middle"], children["Explore: deepest"]
    assert middle[0] == session
    assert deepest[0] == middle[1]["sessionId"]
    assert editor.text(deepest[1]["sessionId"]) == "from below"


def test_a_child_of_a_child_is_part_of_the_summary(project: Project, serve: Any, edit: Edit) -> None:
    serve(three_deep)
    editor = edit(RETINUE_MAX_DEPTH="3")
    editor.initialize()
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Delegate") == "end_turn"
    (call,) = [call for call in editor.calls(session).values() if call["name"] == "Agent"]
    shown = content_text(call)
    assert "general-purpose: middle · completed" in shown
    assert "\n  Explore: deepest · completed" in shown
    assert "from the middle" in shown


def test_an_agent_that_works_long_is_never_silent(project: Project, serve: Any, edit: Edit) -> None:
    def slow(request: Request) -> Reply:
        if "look for" in said(request)[:120]:
            return Reply("Found.") if request.turn else Reply("I wait.", calls=[("bash", {"command": "sleep 7"})])
        if request.turn == 0:
            call = {"prompt": "look for it", "subagent_type": "general-purpose", "description": "slow one"}
            return Reply(calls=[("Agent", call)])
        return Reply("All done.")

    serve(slow)
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    told = 0
    request = editor.begin_prompt(session, "Go")
    seen = 0
    while True:
        frame = editor.until(lambda frame: True, seen)
        seen += 1
        text = json.dumps(frame)
        if "tool_call_update" in text and "slow one" in text:
            told += 1
        if frame.get("id") == request:
            break
    assert told >= 3, "the agent was silent for seven seconds"
    (call,) = [call for call in editor.calls(session).values() if call["name"] == "Agent"]
    assert call["status"] == "completed" and "Found." in content_text(call)


def test_a_child_can_be_cancelled_alone(project: Project, serve: Any, edit: Edit) -> None:
    def hangs(request: Request) -> Reply:
        if "look for" in said(request)[:120]:
            return Reply("Thinking", hang=True)
        if request.turn == 0:
            call = {"prompt": "look for it", "subagent_type": "Explore", "description": "slow one"}
            return Reply(calls=[("Agent", call)])
        return Reply("Without it.")

    serve(hangs)
    editor = edit()
    editor.initialize(subagents={})
    session = editor.new(project.cwd)
    request = editor.begin_prompt(session, "Go")
    editor.until(lambda frame: "subagent_update" in json.dumps(frame))
    child = announced(editor)["Explore: slow one"][1]["sessionId"]
    editor.notify("session/cancel", sessionId=child)
    assert editor.end(request)["result"]["stopReason"] == "end_turn"
    states = [each["state"] for each in editor.updates("subagent_update", session) if each["sessionId"] == child]
    assert states[-1] == {"state": "idle", "stopReason": "cancelled"}
    assert editor.text(session).endswith("Without it.")
