"""An ending says what it is: cut off, stopped by whom, and what still lives."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

CUT = "cut off at the output limit"


def said(request: Request) -> str:
    return json.dumps(request.body["messages"])


def cut_off(_: Request) -> Reply:
    return Reply("one ", stop="max_tokens")


def test_an_answer_cut_off_at_the_output_limit_says_so_everywhere(project: Project, serve: Any) -> None:
    server = serve(cut_off)
    shown = project.retinue("run", "Explore", "x")
    assert shown.returncode == 1
    assert shown.stdout == "one one \n"
    assert f"completed, {CUT}" in shown.stderr
    assert len(server.requests) == 2, "it was asked for the rest, once"
    document = json.loads(project.retinue("run", "Explore", "x", "--json").stdout)
    assert document["details"]["results"][0]["exitCode"] == 1
    assert document["details"]["error"]["code"] == "SUBAGENT_OUTPUT_TRUNCATED"
    assert document["details"]["results"][0]["truncated"] is True
    summary = json.loads(project.retinue("-p", "x", "--output-format", "json").stdout)
    assert summary["truncated"] is True
    assert any(CUT in note for note in summary["notes"])
    lines = project.retinue("-p", "x", "--output-format", "stream-json").stdout.splitlines()
    assert json.loads(lines[-1])["truncated"] is True
    rows = project.json("runs", "list", "--json")["runs"]
    assert [row["truncated"] for row in rows] == [True] * 4
    assert project.retinue("runs", "list").stdout.count("completed, cut off ") == 4
    run_id = rows[0]["id"]
    assert CUT in project.retinue("runs", "show", run_id).stdout


def test_the_parent_of_an_agent_whose_answer_was_cut_off_is_told(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if '"half"' in json.dumps(request.body["messages"][0]):
            return cut_off(request)
        if request.turn == 0:
            call = {"prompt": "half", "description": "d", "subagent_type": "Explore"}
            return Reply(calls=[("Agent", call | {"run_in_background": kind}) for kind in (False, True)])
        return Reply("done")

    server = serve(answer)
    assert project.retinue("-p", "Ask them").returncode == 0
    last = server.requests[-1]
    (first, _) = last.results
    text = json.dumps(first["content"])
    assert CUT in text
    assert "Everything it produced" not in text
    assert f"<status>Done ({CUT})</status>" in json.loads(json.dumps(said(last)))


def test_a_foreground_agent_that_a_person_stopped_is_left_alone_by_its_parent(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if '"look"' in said(request)[:200]:
            return Reply("Looking. ", [("bash", {"command": "touch here; sleep 60"})])
        if request.turn == 0:
            call = {"prompt": "look", "description": "d", "subagent_type": "general-purpose"}
            return Reply(calls=[("Agent", call | {"run_in_background": False})])
        return Reply("understood")

    server = serve(answer)
    process = project.start("-p", "Ask it")
    while not (project.cwd / "here").exists():
        assert process.poll() is None
        time.sleep(0.01)
    (child,) = [row["id"] for row in project.json("runs", "list", "--json")["runs"] if row["depth"] == 1]
    assert project.retinue("runs", "stop", child).returncode == 0
    assert process.communicate(timeout=60)[0] == "understood\n"
    assert "Status   stopped\n" in project.retinue("runs", "show", child).stdout
    (result,) = server.requests[-1].results
    text = json.dumps(result["content"])
    assert "Stopped by the user" in text
    assert "the user stopped it" in text and "leave it" in text


def test_a_call_that_was_stopped_while_it_waited_for_approval_has_not_begun(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("I write. ", [("write", {"path": "new.txt", "content": "x"})]))
    process = project.start(
        "run",
        "general-purpose",
        "write",
        "--mode",
        "json",
        env={"RETINUE_PERMISSIONS_DEFAULT_MODE": "default", "RETINUE_PERMISSIONS_HEADLESS": "wait"},
    )
    while not (items := project.json("inbox", "list", "--json")["items"]):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    assert project.retinue("runs", "stop", items[0]["run_id"]).returncode == 0
    out, _ = process.communicate(timeout=60)
    ends = [event for event in map(json.loads, out.splitlines()) if event["type"] == "tool.ended"]
    assert "Nothing of it has happened" in json.dumps(ends[-1])
    assert json.loads(out.splitlines()[-1])["evidence"]["unknown_effects"] == []


def test_commands_that_outlive_a_killed_process_are_listed_and_can_be_ended(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("", [("bash", {"command": "touch here; sleep 300"})]))
    # In a sandbox they would end with the process.
    process = project.start("run", "general-purpose", "x", env={"RETINUE_SANDBOX_MODE": "off"})
    while not (project.cwd / "here").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    listed = project.retinue("runs", "list")
    assert "! still runs: sleep 300" in listed.stdout, listed.stdout
    assert "retinue runs stop ID" in listed.stderr
    found = project.json("runs", "list", "--json")
    (cut,) = found["interrupted"]
    assert any("sleep 300" in each for each in cut["still_running"])
    shown = project.retinue("runs", "show", cut["id"]).stdout
    assert "Still runs: sleep 300" in shown, "whoever looks at the run itself learns it, too"
    stopped = project.retinue("runs", "stop", cut["id"])
    assert stopped.returncode == 0, stopped.stderr
    assert "sleep 300" in stopped.stdout
    assert project.json("runs", "list", "--json")["interrupted"][0]["still_running"] == []
