"""A run that ended well and lacks something does not look like one that lacks nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.program.chat_server import ChatServer
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request


def test_an_empty_answer_has_no_check_mark(project: Project, serve: Any) -> None:
    serve(lambda request: Reply(""))
    words = ("run", "general-purpose", "Do it")
    shown = project.retinue(*words).stderr
    assert "! completed, without an answer" in shown and "✓" not in shown
    assert (
        json.loads(project.retinue(*words, "--json").stdout)["details"]["results"][0]["shortfall"]
        == "without an answer"
    )


def test_a_run_whose_calls_were_all_denied_says_so(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        return Reply(calls=[("write", {"path": "a.txt", "content": "x"})]) if request.turn == 0 else Reply("Written.")

    serve(answer)
    project.mode = "default"
    done = project.retinue("-p", "Write a.txt", "--output-format", "json")
    assert not (project.cwd / "a.txt").exists()
    assert json.loads(done.stdout)["shortfall"] == "with every call denied"
    assert "! completed, with every call denied" in project.retinue("run", "general-purpose", "Write a.txt").stderr


def test_tokens_that_nobody_counted_are_unknown(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("half", hang=True))
    words = ("run", "general-purpose", "Do it", "--timeout", "1")
    done = project.retinue(*words)
    assert done.returncode == 124
    assert "tokens unknown" in done.stderr and "0 token" not in done.stderr
    assert json.loads(project.retinue(*words, "--json").stdout)["details"]["results"][0]["usageKnown"] is False
    assert "tokens unknown" in project.retinue("runs", "list").stdout


@pytest.fixture
def gateway(project: Project) -> Iterator[ChatServer]:
    with ChatServer("claude-sonnet-4-5", "own-70b") as server:
        settings = project.home / ".retinue" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"providers": {"gw": {"baseUrl": server.url}}}))
        yield server


def test_a_known_model_of_a_gateway_on_this_machine_has_its_price_and_window(
    project: Project, gateway: ChatServer
) -> None:
    assert project.json("models", "resolve", "gw/claude-sonnet-4-5", "--json")["window"] == 200_000
    done = project.json("-p", "Say hello", "--model", "gw/claude-sonnet-4-5", "--output-format", "json")
    assert done["usage"]["cost_usd"] > 0


def test_no_budget_in_money_binds_an_unknown_model_of_a_gateway(project: Project, gateway: ChatServer) -> None:
    words = ("-p", "Say hello", "--model", "gw/own-70b", "--output-format", "json")
    assert project.json(*words)["usage"]["cost_usd"] is None
    asked = len(gateway.requests)
    refused = json.loads(project.retinue(*words, "--max-budget-usd", "1").stdout)
    assert refused["is_error"] and "price" in refused["error"]["message"]
    assert len(gateway.requests) == asked, "nothing is sent"


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_the_document_of_a_full_disk_names_the_run_that_can_go_on(project: Project, serve: Any, form: str) -> None:
    (project.cwd / "big.txt").write_text("a line of the big file\n" * 1_500)

    def answer(request: Request) -> Reply:
        again = request.turn < 40 and "Go on" not in json.dumps(request.body["messages"])
        return Reply(calls=[("read", {"path": "big.txt", "limit": 1_500 - request.turn})]) if again else Reply("Done.")

    serve(answer)
    assert project.retinue("-p", "Go on", "--output-format", "json").returncode == 0
    command = ('ulimit -f 900; exec "$@"', "bash", *project.program, "-p", "Read it", "--output-format", form)
    done = subprocess.run(
        ["bash", "-c", *command], cwd=project.cwd, env=project.environment, capture_output=True, text=True, timeout=60
    )
    last = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1, done.stderr
    assert (last.get("status") or last["ended"]) == "interrupted", last
    assert project.retinue("runs", "resume", last["run_id"], "Go on").returncode == 0
