"""Questions of agents through the real program: answered by the agent above, by a person in another
process, after a kill; and lists of what is to be done, shown by `runs show`."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_approvals import ended, until

WAIT = {"RETINUE_PERMISSIONS_HEADLESS": "wait"}


def names(request: Request) -> list[str]:
    return [tool["name"] for tool in request.body.get("tools", [])]


def last(request: Request) -> str:
    return json.dumps(request.results[-1]["content"])


def asks(request: Request) -> Reply:
    """An agent that asks once and then says what it was told."""
    if request.turn == 0:
        return Reply("", [("ask_parent", {"question": "Which port?", "options": ["80", "8080"]})])
    return Reply(f"told: {last(request)}")


def waiting(project: Project) -> dict[str, Any]:
    return until(lambda: project.json("inbox", "list", "--json")["items"])[0]


def test_a_person_answers_from_another_process_while_the_agent_waits(project: Project, serve: Any) -> None:
    serve(asks)
    process = project.start("run", "general-purpose", "x", "--json", env=WAIT)
    item = waiting(project)
    assert (item["kind"], item["title"], item["options"]) == ("question", "Which port?", ["80", "8080"])
    assert "waiting for an answer" in project.retinue("runs", "list").stdout
    assert "waiting for an answer" in project.retinue("runs", "show", item["run_id"]).stdout
    assert project.retinue("inbox", "answer", item["id"], "8080").returncode == 0
    out, _ = ended(process)
    assert "Answer of command line: 8080" in json.loads(out)["content"][0]["text"]


def test_steering_the_agent_that_waits_is_an_answer_too(project: Project, serve: Any) -> None:
    serve(asks)
    process = project.start("run", "general-purpose", "x", "--json", env=WAIT)
    waiting(project)
    (run,) = project.json("runs", "list", "--json")["runs"]
    assert project.retinue("runs", "steer", run["id"], "Take 443.").returncode == 0
    out, _ = ended(process)
    assert "Take 443." in json.loads(out)["content"][0]["text"]
    assert [each["state"] for each in project.json("inbox", "list", "--all", "--json")["items"]] == ["withdrawn"]


def test_the_agent_above_answers_with_steer_subagent(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if "Agent" not in names(request) or "look it up" in json.dumps(request.body["messages"][0]):
            return asks(request)
        said = json.dumps(request.body["messages"])
        if request.turn == 0:
            call = {"prompt": "look it up", "description": "d", "subagent_type": "general-purpose"}
            return Reply("", [("Agent", call)])
        if "<agent-question>" in said and request.turn == 1:
            child = said.split("<agent-id>")[1].split("<")[0]
            return Reply("", [("steer_subagent", {"agent_id": child, "message": "Port 8080."})])
        if "task-notification" in said:
            return Reply("all done" if "Port 8080." in said else "it was never told")
        return Reply("I wait.")

    serve(answer)
    done = project.retinue("-p", "go", "--output-format", "json")
    assert json.loads(done.stdout)["result"] == "all done", done.stderr


def test_where_nobody_can_answer_ask_parent_is_not_offered_and_a_call_says_how_to_go_on(
    project: Project, serve: Any
) -> None:
    told: list[str] = []

    def answer(request: Request) -> Reply:
        if "It is 443." in json.dumps(request.body["messages"][-1]):
            return Reply("Then 443.")
        if request.turn == 0:
            return asks(request)
        told.append(last(request))
        return Reply("Which port should I take?")

    server = serve(answer)
    document = project.json("run", "general-purpose", "x", "--json")
    assert "ask_parent" not in names(server.requests[0])
    assert "nobody is there to answer" in told[0] and "end with the question as your answer" in told[0]
    assert document["content"][0]["text"] == "Which port should I take?"
    again = project.json("runs", "resume", document["details"]["runId"], "It is 443.", "--json")
    assert "Then 443." in json.dumps(again)


def test_an_agent_that_its_parent_waits_for_cannot_ask_it_and_one_in_the_background_can(
    project: Project, serve: Any
) -> None:
    offered: dict[str, list[str]] = {}

    def answer(request: Request) -> Reply:
        task = json.dumps(request.body["messages"][0])
        for each in ("BEHIND", "AHEAD"):
            if each in task:
                offered[each] = names(request)
                return Reply("report")
        if request.turn == 0:
            calls = [("BEHIND", True), ("AHEAD", False)]
            return Reply("", [("Agent", {"prompt": p, "description": "d", "run_in_background": b}) for p, b in calls])
        return Reply("done")

    serve(answer)
    assert project.retinue("-p", "go").returncode == 0
    assert "ask_parent" in offered["BEHIND"]
    assert "ask_parent" not in offered["AHEAD"]


def test_a_question_of_a_killed_process_can_be_answered_and_the_resumed_run_takes_it(
    project: Project, serve: Any
) -> None:
    def answer(request: Request) -> Reply:
        """Asks again what was cut off."""
        if request.turn == 0 or (request.turn == 1 and "8080" not in last(request)):
            return Reply("", [("ask_parent", {"question": "Which port?", "options": ["80", "8080"]})])
        return Reply(f"told: {last(request)}")

    serve(answer)
    process = project.start("run", "general-purpose", "x", "--json", env=WAIT)
    item = waiting(project)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert project.retinue("inbox", "answer", item["id"], "8080").returncode == 0
    (run,) = project.json("runs", "list", "--json")["runs"]
    done = project.retinue("runs", "resume", run["id"], "--json", env=WAIT)
    assert "8080" in done.stdout, done.stderr


@pytest.mark.parametrize("tool", ["todo", "TodoWrite"])
def test_a_list_is_in_the_events_and_in_runs_show(project: Project, serve: Any, tool: str) -> None:
    todos = [
        {"content": "Read it", "status": "completed", "activeForm": "Reading it"},
        {"content": "Mend it", "status": "in_progress", "activeForm": "Mending it"},
    ]
    serve(lambda request: Reply("", [("todo", {"todos": todos})]) if request.turn == 0 else Reply("done"))
    agents = {"planner": {"description": "P", "prompt": "You plan.", "tools": ["Read", tool]}}
    done = project.retinue("-p", "go", "--agent", "planner", "--agents", json.dumps(agents), "--output-format", "json")
    assert done.returncode == 0, done.stderr
    (run,) = project.json("runs", "list", "--json")["runs"]
    events = project.json("runs", "show", run["id"], "--json")["events"]
    (updated,) = [event for event in events if event["type"] == "todos.updated"]
    assert [todo["status"] for todo in updated["todos"]] == ["completed", "in_progress"]
    assert "Todo     [x] Read it\nTodo     [>] Mend it" in project.retinue("runs", "show", run["id"]).stdout
