"""The mode auto end to end: a classifier over HTTP answers what the mode would ask, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply, Request

JUDGE = "claude-haiku-5-5"


@pytest.fixture(autouse=True)
def auto(project: Project) -> None:
    project.mode = "auto"
    settings = {
        "permissions": {"autoModel": f"anthropic/{JUDGE}", "ask": ["Bash(make:*)"]},
        "retry": {"maxAttempts": 1},
    }
    folder = project.home / ".retinue"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings))


def judged(answer: Callable[[int], Reply], calls: list[tuple[str, Any]]) -> Callable[[Request], Reply]:
    """A run that makes `calls` one after another; the judge's n-th answer is `answer(n)`."""
    asked: list[Request] = []

    def reply(request: Request) -> Reply:
        if request.body["model"] == JUDGE:
            asked.append(request)
            return answer(len(asked))
        return Reply(calls=[calls[request.turn]]) if request.turn < len(calls) else Reply(text="done")

    return reply


def writing(number: int) -> tuple[str, dict[str, str]]:
    return "write", {"path": f"new{number}.txt", "content": "x"}


def questions(server: ModelServer) -> list[dict[str, Any]]:
    asked = [request.body for request in server.requests if request.body["model"] == JUDGE]
    assert not any(body.get("tools") for body in asked)
    return [json.loads(json.dumps(body)) for body in asked]


def results(project: Project) -> list[dict[str, Any]]:
    run = project.json("runs", "list", "--json")["runs"][0]["id"]
    events = project.json("runs", "show", run, "--json")["events"]
    return [event for event in events if event["type"] == "tool.ended"]


def test_what_the_classifier_allows_runs_unasked_and_the_record_says_so(project, serve):
    server = serve(judged(lambda n: Reply(text="ALLOW: it only adds a file"), [writing(0)]))
    assert project.retinue("-p", "go").returncode == 0
    assert (project.cwd / "new0.txt").exists()
    assert results(project)[0]["effect"]["allowed"] == "classifier: The classifier says: it only adds a file."
    (question,) = questions(server)
    assert "new0.txt" in json.dumps(question["messages"])
    assert question["thinking"] == {"type": "disabled"}, "thinking would use up the room of the verdict"


def test_what_it_denies_does_not_run_and_the_agent_hears_why(project, serve):
    serve(judged(lambda n: Reply(text="DENY: nobody asked for that file"), [writing(0)]))
    assert project.retinue("-p", "go").returncode == 0
    assert not (project.cwd / "new0.txt").exists()
    assert "nobody asked for that file" in json.dumps(results(project)[0]["result"])


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=500),
        Reply(status=401),
        Reply(text="I think ALLOW is right"),
        Reply(text="ALLOW: yes\nDENY: no"),
        Reply(text=""),
        Reply(cut=1, text="ALLOW"),
    ],
    ids=["down", "no key", "no answer", "two answers", "silence", "cut off"],
)
def test_a_classifier_that_is_down_or_unclear_leaves_the_question_to_a_person(project, serve, reply):
    serve(judged(lambda n: reply, [writing(0)]))
    assert project.retinue("-p", "go").returncode == 0
    assert not (project.cwd / "new0.txt").exists()
    assert "Nobody is there to ask" in json.dumps(results(project)[0])


def test_after_three_denials_in_a_row_people_are_asked_and_the_classifier_is_not(project, serve):
    server = serve(judged(lambda n: Reply(text="DENY: no"), [writing(n) for n in range(5)]))
    assert project.retinue("-p", "go").returncode == 0
    texts = [json.dumps(each["result"]) for each in results(project)]
    assert ["The classifier says" in text for text in texts] == [True, True, True, False, False]
    assert ["Nobody is there to ask" in text for text in texts] == [False, False, False, True, True]
    assert len(questions(server)) == 3


def test_it_is_not_asked_about_rules_reads_or_what_cannot_be_judged(project, serve):
    calls = [("bash", {"command": "make all"}), ("bash", {"command": "ls"}), ("bash", {"command": "$X y"})]
    server = serve(judged(lambda n: Reply(text="ALLOW: fine"), calls))
    assert project.retinue("-p", "go").returncode == 0
    assert questions(server) == []
    assert [each["result"]["is_error"] for each in results(project)] == [True, False, True]
