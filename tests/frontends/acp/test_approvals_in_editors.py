"""Approvals and questions of any run of the tree in an editor: with the diff, answered once, withdrawn elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.frontends.acp.conftest import Editor, content_text
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Edit = Callable[..., Editor]
CHANGE = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def select(option: str) -> Callable[[dict[str, Any]], Any]:
    return lambda params: {"outcome": {"outcome": "selected", "optionId": option}}


def changes(request: Request) -> Reply:
    return Reply("Done.") if request.turn else Reply("I change it.", calls=[CHANGE])


def child_changes(request: Request) -> Reply:
    if "change it" in said(request)[:120]:
        return Reply("Changed.") if request.turn else Reply(calls=[CHANGE])
    if request.turn == 0:
        call = {"prompt": "change it", "subagent_type": "general-purpose", "description": "changer"}
        return Reply(calls=[("Agent", call)])
    return Reply("All done.")


@pytest.fixture
def asking(project: Project) -> Project:
    project.mode = "default"
    return project


def permission(editor: Editor) -> dict[str, Any]:
    return editor.until(lambda frame: frame.get("method") == "session/request_permission")


@pytest.mark.parametrize(("option", "content"), [("allow", "gamma"), ("deny", "beta")])
def test_an_approval_has_its_diff(asking: Project, serve: Any, edit: Edit, option: str, content: str) -> None:
    serve(changes)
    editor = edit()
    editor.answers["session/request_permission"] = select(option)
    editor.initialize()
    session = editor.new(asking.cwd)
    assert editor.prompt(session, "Change beta") == "end_turn"
    asked = permission(editor)["params"]
    path = str(asking.cwd / "f0.txt")
    assert asked["sessionId"] == session
    assert asked["toolCall"]["content"][0] == {"type": "diff", "path": path, "oldText": "beta", "newText": "gamma"}
    kinds = {each["optionId"]: each["kind"] for each in asked["options"]}
    assert kinds == {
        "allow": "allow_once",
        "allow-run": "allow_always",
        "allow-agent": "allow_always",
        "always": "allow_always",
        "deny": "reject_once",
    }
    assert content in (asking.cwd / "f0.txt").read_text()
    (call,) = editor.calls(session).values()
    assert call["toolCallId"] == asked["toolCall"]["toolCallId"]
    assert call["status"] == ("completed" if option == "allow" else "failed")


def test_a_file_that_is_written_anew_is_shown_as_it_is(asking: Project, serve: Any, edit: Edit) -> None:
    write = ("write", {"path": "f0.txt", "content": "new\n"})
    serve(lambda request: Reply("Done.") if request.turn else Reply(calls=[("read", {"path": "f0.txt"}), write]))
    editor = edit()
    editor.answers["session/request_permission"] = select("allow")
    editor.initialize()
    session = editor.new(asking.cwd)
    assert editor.prompt(session, "Write") == "end_turn"
    diff = permission(editor)["params"]["toolCall"]["content"][0]
    assert (diff["oldText"], diff["newText"]) == ("alpha 0\nbeta\n", "new\n")


def test_an_approval_of_a_child_without_child_sessions(asking: Project, serve: Any, edit: Edit) -> None:
    serve(child_changes)
    editor = edit()
    editor.answers["session/request_permission"] = select("allow")
    editor.initialize()
    session = editor.new(asking.cwd)
    assert editor.prompt(session, "Change beta") == "end_turn"
    asked = permission(editor)["params"]
    assert asked["sessionId"] == session
    assert asked["toolCall"]["title"] == "general-purpose: edit f0.txt"
    assert asked["toolCall"]["content"][0]["newText"] == "gamma"
    calls = editor.calls(session)
    assert calls[asked["toolCall"]["toolCallId"]]["status"] == "completed"
    assert {call["status"] for call in calls.values()} == {"completed"}
    assert "gamma" in (asking.cwd / "f0.txt").read_text()


def test_an_approval_of_a_child_session(asking: Project, serve: Any, edit: Edit) -> None:
    serve(child_changes)
    editor = edit()
    editor.answers["session/request_permission"] = select("allow")
    editor.initialize(subagents={})
    session = editor.new(asking.cwd)
    assert editor.prompt(session, "Change beta") == "end_turn"
    asked = permission(editor)["params"]
    child = asked["sessionId"]
    assert child != session
    assert asked["toolCall"]["toolCallId"] in editor.calls(child)
    states = [each["state"]["state"] for each in editor.updates("subagent_update", session)]
    assert states == ["running", "requires_action", "running", "idle"]


def test_who_answers_elsewhere_first_counts(asking: Project, serve: Any, edit: Edit) -> None:
    serve(changes)
    editor = edit()
    editor.initialize()
    session = editor.new(asking.cwd)
    request = editor.begin_prompt(session, "Change beta")
    asked = permission(editor)
    (item,) = asking.json("inbox", "list", "--json")["items"]
    assert asking.retinue("inbox", "answer", item["id"], "allow").returncode == 0
    withdrawn = editor.until(lambda frame: frame.get("method") == "$/cancel_request")
    assert withdrawn["params"] == {"requestId": asked["id"]}
    # The loser's answer comes too late, and changes nothing.
    editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": select("deny")({})})
    assert editor.end(request)["result"]["stopReason"] == "end_turn"
    assert "gamma" in (asking.cwd / "f0.txt").read_text()


def test_an_editor_that_cannot_ask_leaves_it_to_others(asking: Project, serve: Any, edit: Edit) -> None:
    serve(changes)
    editor = edit()
    editor.initialize()
    session = editor.new(asking.cwd)
    request = editor.begin_prompt(session, "Change beta")
    asked = permission(editor)
    error = {"code": -32601, "message": "Method not found"}
    editor.send({"jsonrpc": "2.0", "id": asked["id"], "error": error})
    told = editor.until(lambda frame: "/inbox" in json.dumps(frame) and "cannot ask you" in json.dumps(frame))
    command = told["params"]["update"]["content"]["text"].partition("Answer with: ")[2].split()
    assert editor.prompt(session, f"{command[0]} {command[1]} allow") == "end_turn"
    assert editor.end(request)["result"]["stopReason"] == "end_turn"
    assert "gamma" in (asking.cwd / "f0.txt").read_text()


ASK = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}


def asks(question: dict[str, Any]) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        return Reply(f"Heard: {said(request)[-300:]}") if request.turn else Reply(calls=[("ask_user", question)])

    return answer


def test_a_question_is_a_form_where_the_client_has_forms(project: Project, serve: Any, edit: Edit) -> None:
    model = serve(asks(ASK))
    editor = edit()
    editor.answers["elicitation/create"] = lambda params: {"action": "accept", "content": {"answer": "blue"}}
    editor.initialize(elicitation={"form": {}})
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Ask me") == "end_turn"
    form = editor.until(lambda frame: frame.get("method") == "elicitation/create")["params"]
    assert form["message"].startswith("Which colour?")
    options = form["requestedSchema"]["properties"]["answer"]["oneOf"]
    assert [each["const"] for each in options] == ["red", "blue"]
    assert "blue" in json.dumps(model.requests[-1].results)


def test_a_question_without_forms_has_options(project: Project, serve: Any, edit: Edit) -> None:
    model = serve(asks(ASK))
    editor = edit()
    editor.answers["session/request_permission"] = select("red")
    editor.initialize()
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Ask me") == "end_turn"
    assert "red" in json.dumps(model.requests[-1].results)


def test_a_question_in_words_is_answered_by_the_next_prompt(project: Project, serve: Any, edit: Edit) -> None:
    model = serve(asks({"question": "What is its name?"}))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Ask me") == "end_turn"
    assert "What is its name?" in editor.text(session)
    assert len(model.requests) == 1, "the run waits"
    assert editor.prompt(session, "Call it Otto") == "end_turn"
    assert "Call it Otto" in json.dumps(model.requests[-1].results)
    assert "Heard:" in editor.text(session)


def test_content_of_a_call_shows_why_it_is_asked(asking: Project, serve: Any, edit: Edit) -> None:
    call = ("bash", {"command": "touch made.txt"})
    serve(lambda request: Reply("Done.") if request.turn else Reply(calls=[call]))
    editor = edit()
    editor.answers["session/request_permission"] = select("deny")
    editor.initialize()
    session = editor.new(asking.cwd)
    assert editor.prompt(session, "Touch") == "end_turn"
    asked = permission(editor)["params"]["toolCall"]
    assert asked["kind"] == "execute" and asked["title"] == "bash: touch made.txt"
    assert content_text(asked)
    assert not (asking.cwd / "made.txt").exists()


def test_an_approved_plan_changes_the_mode(project: Project, serve: Any, edit: Edit) -> None:
    project.mode = "plan"

    def plans(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("exit_plan", {"plan": "1. Change beta in f0.txt to gamma."})])
        return Reply("Done.") if request.turn > 1 else Reply(calls=[CHANGE])

    serve(plans)
    editor = edit()
    editor.answers["session/request_permission"] = lambda params: select(params["options"][0]["optionId"])({})
    editor.initialize()
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Plan it") == "end_turn"
    asked = permission(editor)["params"]
    assert "Change beta in f0.txt" in content_text(asked["toolCall"])
    assert editor.updates("current_mode_update")[-1]["currentModeId"] == "acceptEdits"
    (mode,) = [each for each in editor.updates("config_option_update")[-1]["configOptions"] if each["id"] == "mode"]
    assert mode["currentValue"] == "acceptEdits"
    assert "gamma" in (project.cwd / "f0.txt").read_text()
    (plan,) = [call for call in editor.calls(session).values() if call.get("name") == "exit_plan"]
    assert plan["kind"] == "switch_mode"
