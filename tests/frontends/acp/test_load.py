"""Conversations that are taken up again: after a restart, after kill -9, from another process; listed and deleted."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.frontends.acp.conftest import Editor, content_text
from tests.frontends.acp.test_children import announced
from tests.frontends.acp.test_conversation import two_children
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Edit = Callable[..., Editor]


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def shown(editor: Editor, session: str) -> list[tuple[str, Any]]:
    """Return a conversation as a person sees it: texts of one speaker joined, calls as they are at the end."""
    found: list[tuple[str, Any]] = []
    calls = editor.calls(session)
    for update in editor.updates(None, session):
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk"):
            text = update["content"]["text"]
            if found and found[-1][0] == kind:
                text = found.pop()[1] + text
            found.append((kind, text))
        elif kind == "tool_call":
            call = calls[update["toolCallId"]]
            found.append(("call", (call["title"], call["status"], call.get("content") is not None)))
    return found


def kill(editor: Editor) -> None:
    editor.process.send_signal(signal.SIGKILL)
    editor.process.wait(timeout=30)


def test_a_conversation_is_loaded_as_it_was(project: Project, serve: Any, edit: Edit) -> None:
    serve(two_children)
    first = edit()
    first.initialize()
    session = first.new(project.cwd)
    assert first.prompt(session, "Change beta") == "end_turn"
    first.leave()
    again = edit()
    again.initialize()
    loaded = again.ask("session/load", sessionId=session, cwd=str(project.cwd), mcpServers=[])
    answer = next(number for number, frame in enumerate(again.frames) if frame.get("result") == loaded)
    later = [frame["params"]["update"]["sessionUpdate"] for frame in again.frames[answer + 1 :]]
    assert set(later) <= {"available_commands_update"}, "the past is told before the answer"
    before = shown(first, session)
    after = shown(again, session)
    assert after[0] == ("user_message_chunk", "Change beta")
    assert after[1:] == before
    for call in again.calls(session).values():
        if call["name"] == "Agent":
            assert "completed" in content_text(call) and "It is in f0.txt." in content_text(call)
    assert again.prompt(session, "Thanks") == "end_turn"


def test_each_child_is_loaded_under_its_id(project: Project, serve: Any, edit: Edit) -> None:
    serve(two_children)
    first, again = edit(), edit()
    for editor in (first, again):
        editor.initialize(subagents={})
    session = first.new(project.cwd)
    assert first.prompt(session, "Change beta") == "end_turn"
    again.ask("session/load", sessionId=session, cwd=str(project.cwd), mcpServers=[])
    children = {title: update["sessionId"] for title, (_, update) in announced(first).items()}
    assert {title: update["sessionId"] for title, (_, update) in announced(again).items()} == children
    for child in children.values():
        assert shown(again, child) == shown(first, child)


def test_a_conversation_is_loaded_after_kill(project: Project, serve: Any, edit: Edit) -> None:
    def works(request: Request) -> Reply:
        if "again please" in said(request):
            return Reply("I am back.")
        if "look for" in said(request)[:120]:
            return Reply("Half a sen", hang=True, speaks=True)
        if request.turn == 0:
            call = {"prompt": "look for it", "subagent_type": "Explore", "description": "lost one"}
            return Reply("I begin.", calls=[("Agent", call), ("bash", {"command": "sleep 60"})])
        return Reply("Never said.")

    serve(works)
    first = edit()
    first.initialize(subagents={})
    session = first.new(project.cwd)
    first.begin_prompt(session, "Go")
    first.until(lambda frame: "subagent_update" in json.dumps(frame))
    first.until(lambda frame: "sleep 60" in json.dumps(frame))
    first.until(lambda frame: "Half a " in json.dumps(frame))
    kill(first)
    for capabilities in ({"subagents": {}}, {}):
        again = edit()
        again.initialize(**capabilities)
        again.ask("session/load", sessionId=session, cwd=str(project.cwd), mcpServers=[])
        assert ("agent_message_chunk", "I begin.") in shown(again, session)
        calls = again.calls(session)
        assert not [call for call in calls.values() if call["status"] in ("pending", "in_progress")], calls
        if capabilities:
            states = [each["state"] for each in again.updates("subagent_update", session)]
            assert states[-1] == {"state": "idle"}, "over, and nothing is claimed about how"
            (child,) = {each["sessionId"] for each in again.updates("subagent_update", session)}
            told = [frame["params"] for frame in again.frames if child in json.dumps(frame)]
            assert again.text(child) == "Half a ", "as far as it was shown"
            assert told[-1]["update"]["sessionUpdate"] == "subagent_update", "nothing is told of it after its end"
    assert again.prompt(session, "again please") == "end_turn"
    assert again.text(session).endswith("I am back.")


def test_a_run_of_another_process_is_followed_and_not_taken(project: Project, serve: Any, edit: Edit) -> None:
    go = project.cwd / "go"

    def works(request: Request) -> Reply:
        if request.turn == 0:
            return Reply("Waiting.", calls=[("bash", {"command": "until [ -e go ]; do sleep 0.05; done"})])
        return Reply(f"Steered: {'use blue' in said(request)}")

    serve(works)
    other = project.start("-p", "Work", "--output-format", "json")
    editor = edit()
    editor.initialize()
    session = wait_for_session(editor, project.cwd)
    editor.ask("session/load", sessionId=session, cwd=str(project.cwd), mcpServers=[])
    request = editor.begin_prompt(session, "Are you there?")
    editor.until(lambda frame: "until [ -e go" in json.dumps(frame))
    editor.notify("session/cancel", sessionId=session)
    assert editor.end(request)["result"]["stopReason"] == "cancelled"
    assert "another process" in editor.text(session)
    assert other.poll() is None, "it goes on"
    second = editor.begin_prompt(session, "use blue")
    editor.ask("session/list")
    go.touch()
    assert editor.end(second)["result"]["stopReason"] == "end_turn"
    assert "Steered: True" in editor.text(session)
    assert other.wait(timeout=30) == 0
    assert project.json("runs", "list", "--json")["runs"][0]["ended"] in ("completed", "steered")


def wait_for_session(editor: Editor, cwd: Path) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        sessions = editor.ask("session/list", cwd=str(cwd))["sessions"]
        if sessions:
            session: str = sessions[0]["sessionId"]
            return session
        time.sleep(0.05)
    raise AssertionError("no session")


def test_resume_tells_nothing_of_the_past(project: Project, serve: Any, edit: Edit) -> None:
    model = serve(lambda request: Reply("Yes."))
    first = edit()
    first.initialize()
    session = first.new(project.cwd)
    first.prompt(session, "One")
    first.leave()
    again = edit()
    again.initialize()
    again.ask("session/resume", sessionId=session, cwd=str(project.cwd))
    assert again.text(session) == "" and not again.updates("user_message_chunk")
    assert again.prompt(session, "Two") == "end_turn"
    assert again.text(session) == "Yes."
    assert "One" in said(model.requests[-1])


def test_sessions_are_listed_closed_and_deleted(project: Project, serve: Any, edit: Edit) -> None:
    serve(lambda request: Reply("Yes."))
    editor = edit()
    editor.initialize()
    sessions = []
    for number in range(3):
        sessions.append(editor.new(project.cwd))
        editor.prompt(sessions[-1], f"Talk {number}")
    listed = editor.ask("session/list", cwd=str(project.cwd))["sessions"]
    assert [each["sessionId"] for each in listed] == sessions[::-1]
    assert [each["title"] for each in listed] == ["Talk 2", "Talk 1", "Talk 0"]
    assert listed[0]["cwd"] == str(project.cwd)
    assert len(editor.ask("session/list")["sessions"]) == 3
    assert editor.ask("session/close", sessionId=sessions[0]) == {}
    assert editor.fail("session/prompt", sessionId=sessions[0], prompt=[])["code"] == -32002
    assert editor.ask("session/delete", sessionId=sessions[0]) == {}
    assert editor.ask("session/delete", sessionId=sessions[1]) == {}
    left = editor.ask("session/list", cwd=str(project.cwd))["sessions"]
    assert [each["sessionId"] for each in left] == [sessions[2]]
    assert len(project.json("runs", "list", "--json")["runs"]) == 3, "the log keeps what was done"
    assert editor.fail("session/load", sessionId="nobody", cwd=str(project.cwd), mcpServers=[])["code"] == -32002
    assert editor.fail("session/list", cursor="x")["code"] == -32602


def test_what_waited_when_the_process_died_is_asked_again(project: Project, serve: Any, edit: Edit) -> None:
    project.mode = "default"
    change = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})
    serve(lambda request: Reply("Done.") if request.turn else Reply(calls=[change]))
    first = edit()
    first.initialize()
    session = first.new(project.cwd)
    first.begin_prompt(session, "Change it")
    first.until(lambda frame: frame.get("method") == "session/request_permission")
    kill(first)
    again = edit()
    allow = {"outcome": {"outcome": "selected", "optionId": "allow"}}
    again.answers["session/request_permission"] = lambda params: allow
    again.initialize()
    again.ask("session/load", sessionId=session, cwd=str(project.cwd), mcpServers=[])
    assert again.prompt(session, "Go on") == "end_turn"


def test_closing_the_pipe_stops_what_nobody_sees(project: Project, serve: Any, edit: Edit) -> None:
    serve(lambda request: Reply("…", hang=True))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    editor.begin_prompt(session, "Go")
    editor.until(lambda frame: "session_info_update" in json.dumps(frame))
    code, error = editor.leave()
    assert code == 0, error
    (run,) = project.json("runs", "list", "--json")["runs"]
    assert (run["id"], run["state"], run["ended"]) == (session, "ended", "stopped")
