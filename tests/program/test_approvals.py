"""Approvals end to end: real processes, a real log, a model over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

WAIT = {"RETINUE_PERMISSIONS_HEADLESS": "wait"}
EDIT = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})


@pytest.fixture(autouse=True)
def asking(project: Project) -> None:
    project.mode = "default"


def edits(request: Request) -> Reply:
    """One agent that edits, and tells what came of it."""
    return Reply(calls=[EDIT]) if request.turn == 0 else Reply(text=f"So: {request.results[-1]['content']}")


def delegates(request: Request) -> Reply:
    """A main agent whose child in the background edits."""
    first = json.dumps(request.body["messages"][0])
    if "CHILD" in first and "DELEGATE" not in first:
        return edits(request)
    if request.turn == 0:
        call = {"prompt": "CHILD: edit the file", "description": "edit it", "subagent_type": "general-purpose"}
        return Reply(calls=[("Agent", call)])
    return Reply(text="The parent knows.")


def waiting(project: Project, count: int = 1) -> list[dict[str, Any]]:
    return until(lambda: (found := project.json("inbox", "list", "--json")["items"]) and len(found) >= count and found)


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err


def content(project: Project) -> str:
    return (project.cwd / "f0.txt").read_text()


def events(project: Project, run_id: str) -> list[dict[str, Any]]:
    return project.json("runs", "show", run_id, "--json")["events"]


def test_a_background_agents_edit_waits_is_answered_from_another_process_and_goes_on(project, serve):
    serve(delegates)
    process = project.start("-p", "DELEGATE to a CHILD", env=WAIT)
    item = waiting(project)[0]
    assert (item["agent"], item["kind"], item["default"]) == ("general-purpose", "approval", "deny")
    assert item["payload"]["arguments"] == EDIT[1]
    assert "-beta" in item["detail"] and "+gamma" in item["detail"]
    assert item["expires_at"] > time.time()
    assert not item["interrupted"]
    rows = project.json("runs", "list", "--json")["runs"]
    assert [row["state"] for row in rows if row["id"] == item["run_id"]] == ["waiting"]
    assert "waiting for approval" in project.retinue("runs", "list").stdout
    assert f"always allow: {item['rule']}" in project.retinue("inbox", "list").stdout
    assert "beta" in content(project)
    done = project.retinue("inbox", "answer", item["id"][:6], "allow")
    assert done.returncode == 0, done.stderr
    ended(process)
    assert "gamma" in content(project)
    ends = [event for event in events(project, item["run_id"]) if event["type"] == "tool.ended"]
    assert ends[0]["effect"]["allowed"] == "person: command line allowed it once"
    again = project.retinue("inbox", "answer", item["id"], "deny")
    assert again.returncode == 1
    assert "was answered 'allow' by command line" in again.stderr


def test_a_denial_with_a_message_reaches_the_child_the_outcome_and_the_parent(project, serve):
    server = serve(delegates)
    process = project.start("-p", "DELEGATE to a CHILD", env=WAIT)
    item = waiting(project)[0]
    assert project.retinue("inbox", "answer", item["id"], "deny", "--message", "Use f1.txt").returncode == 0
    ended(process)
    assert content(project) == "alpha 0\nbeta\n"
    child = project.json("runs", "show", item["run_id"], "--json")
    heard = next(event for event in child["events"] if event["type"] == "tool.ended")["result"]["content"][0]["text"]
    assert "Denied by: a person (command line)" in heard
    assert "Message to you: Use f1.txt" in heard
    denials = child["outcome"]["evidence"]["denials"]
    assert len(denials) == 1 and "edit {" in denials[0] and "Use f1.txt" in denials[0]
    told = [json.dumps(request.body["messages"]) for request in server.requests]
    assert any("<task-notification>" in text and "Denied: edit {" in text and "Use f1.txt" in text for text in told)


def test_headless_without_a_policy_denies_and_everybody_is_told(project, serve):
    serve(edits)
    done = project.retinue("run", "general-purpose", "edit", "--json")
    result = json.loads(done.stdout)["details"]["results"][0]
    assert content(project) == "alpha 0\nbeta\n"
    assert "denied by policy" in result["denials"][0]
    assert "Nobody is there to ask" in result["output"]
    assert project.json("inbox", "list", "--all", "--json")["items"] == []


def test_a_supervisor_killed_while_it_waits_leaves_the_item_and_its_answer_is_taken_once(project, serve):
    server = serve(edits)
    process = project.start("run", "general-purpose", "edit", env=WAIT)
    item = waiting(project)[0]
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = project.json("inbox", "list", "--json")["items"]
    assert [(each["id"], each["state"], each["interrupted"]) for each in left] == [(item["id"], "waiting", True)]
    assert "runs resume" in project.retinue("inbox", "list").stdout
    assert project.retinue("inbox", "answer", item["id"], "allow").returncode == 0
    assert project.retinue("inbox", "answer", item["id"], "allow").returncode == 1

    def again(request: Request) -> Reply:
        asked = sum(result["tool_use_id"].startswith("call-") for result in request.results)
        return Reply(calls=[EDIT]) if asked < 3 else Reply(text="done")

    server.answer = again
    resumed = project.start("runs", "resume", item["run_id"], env=WAIT)
    # The first repetition takes the recorded answer; the next one has to ask anew.
    new = waiting(project)[0]
    assert new["id"] != item["id"]
    assert "gamma" in content(project)
    told = json.dumps(server.requests[-1].body["messages"])
    assert "still waited for approval" in told and "effect of this call is unknown" not in told
    assert project.retinue("inbox", "answer", new["id"], "deny").returncode == 0
    ended(resumed)


def test_a_resumed_run_that_does_not_ask_again_withdraws_what_it_had_asked(project, serve):
    server = serve(edits)
    process = project.start("run", "general-purpose", "edit", env=WAIT)
    item = waiting(project)[0]
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.answer = lambda request: Reply(text="Something else.")
    ended(project.start("runs", "resume", item["run_id"], env=WAIT))
    assert project.json("inbox", "list", "--json")["items"] == []
    assert [each["state"] for each in project.json("inbox", "list", "--all", "--json")["items"]] == ["withdrawn"]


def test_of_two_simultaneous_answers_exactly_one_wins(project, serve):
    serve(edits)
    process = project.start("run", "general-purpose", "edit", env=WAIT)
    item = waiting(project)[0]
    tries = [project.start("inbox", "answer", item["id"], choice, "--json") for choice in ("allow", "deny")]
    outs = [each.communicate(timeout=60) for each in tries]
    assert sorted(each.returncode for each in tries) == [0, 1]
    won = json.loads(next(out for (out, _), each in zip(outs, tries, strict=True) if each.returncode == 0))
    lost = next(err for (_, err), each in zip(outs, tries, strict=True) if each.returncode == 1)
    assert f"was answered '{won['answer']['choice']}' by command line" in lost
    ended(process)
    assert ("gamma" in content(project)) == (won["answer"]["choice"] == "allow")


def test_what_is_allowed_for_the_agent_or_always_is_not_asked_again(project, serve):
    serve(edits)
    for choice in ("allow-agent", "always"):
        (project.cwd / "f0.txt").write_text("alpha 0\nbeta\n")
        env = WAIT if choice == "allow-agent" else WAIT | {"RETINUE_HOME": str(project.home / "other")}
        process = project.start("run", "general-purpose", "edit", env=env)
        item = until(lambda env=env: json.loads(project.retinue("inbox", "list", "--json", env=env).stdout)["items"])[0]
        assert project.retinue("inbox", "answer", item["id"], choice, env=env).returncode == 0
        ended(process)
        assert "gamma" in content(project)
        (project.cwd / "f0.txt").write_text("alpha 0\nbeta\n")
        done = project.retinue("run", "general-purpose", "edit", env=env)
        assert done.returncode == 0, done.stderr
        assert "gamma" in content(project), done.stderr
    settings = json.loads((project.cwd / ".retinue" / "settings.local.json").read_text())
    assert settings["permissions"]["allow"] == [item["rule"]]


def test_a_stopped_run_withdraws_what_it_asked(project, serve):
    serve(edits)
    process = project.start("run", "general-purpose", "edit", env=WAIT)
    item = waiting(project)[0]
    assert project.retinue("runs", "stop", item["run_id"]).returncode == 0
    assert "■ stopped" in process.communicate(timeout=60)[1], "V17: a person's stop is no failure"
    assert project.json("inbox", "list", "--json")["items"] == []
    late = project.retinue("inbox", "answer", item["id"], "allow")
    assert late.returncode == 1 and "withdrawn" in late.stderr


def test_an_unknown_item_and_a_wrong_answer_are_usage_errors(project, serve):
    serve(edits)
    assert project.retinue("inbox", "answer", "ffff", "allow").returncode == 2
    process = project.start("run", "general-purpose", "edit", env=WAIT)
    item = waiting(project)[0]
    wrong = project.retinue("inbox", "answer", item["id"], "perhaps")
    assert wrong.returncode == 2 and "Choose one of: allow" in wrong.stderr
    project.retinue("inbox", "answer", item["id"], "deny")
    ended(process)


def test_on_a_terminal_the_question_is_asked_there_and_goes_away_when_answered_elsewhere(project, serve):
    import os
    import pty
    import sys

    serve(edits)
    for elsewhere in (False, True):
        (project.cwd / "f0.txt").write_text("alpha 0\nbeta\n")
        main, side = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "retinue", "run", "general-purpose", "edit"],
            cwd=project.cwd,
            env=project.environment,
            stdin=side,
            stderr=side,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: _own_terminal(0),
        )
        os.close(side)
        shown: list[bytes] = []
        reading = threading.Thread(target=_read, args=(main, shown), daemon=True)
        reading.start()
        until(lambda shown=shown: b"y once" in b"".join(shown))
        if elsewhere:
            item = waiting(project)[0]
            assert project.retinue("inbox", "answer", item["id"], "allow").returncode == 0
        else:
            os.write(main, b"y\n")
        process.communicate(timeout=60)
        reading.join(5)
        text = b"".join(shown).decode()
        assert process.returncode == 0, text
        assert "edit f0.txt" in text and "+gamma" in text
        assert ("answered elsewhere" in text) == elsewhere
        assert "gamma" in content(project)
        os.close(main)


def _own_terminal(descriptor: int) -> None:
    import fcntl
    import os
    import termios

    os.setsid()
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def _read(descriptor: int, shown: list[bytes]) -> None:
    import os

    while True:
        try:
            data = os.read(descriptor, 4096)
        except OSError:
            return
        if not data:
            return
        shown.append(data)
