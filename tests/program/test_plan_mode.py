"""Plan mode to its end through the real program: the plan is approved and carried out, refused and
revised, or is the answer where nobody can be asked."""

from __future__ import annotations

import json
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_approvals import ended, until

WAIT = {"RETINUE_PERMISSIONS_HEADLESS": "wait"}
PLAN = ("exit_plan", {"plan": "1. Write made.txt"})


def names(request: Request) -> list[str]:
    return [tool["name"] for tool in request.body["tools"]]


def told(request: Request) -> list[str]:
    return [json.dumps(result["content"]) for result in request.results]


def answered(project: Project, *words: str) -> dict[str, Any]:
    """Waits for the question, answers it, and returns it."""
    item: dict[str, Any] = until(lambda: project.json("inbox", "list", "--json")["items"])[0]
    assert project.retinue("inbox", "answer", item["id"], *words).returncode == 0
    return item


def script(*calls: tuple[str, dict[str, Any]]) -> Any:
    return lambda request: Reply("", [calls[request.turn]]) if request.turn < len(calls) else Reply("all done")


def test_after_a_yes_the_run_carries_its_plan_out_and_keeps_the_mode_when_it_is_resumed(
    project: Project, serve: Any
) -> None:
    server = serve(
        script(
            ("bash", {"command": "touch early.txt"}),
            PLAN,
            ("write", {"path": "made.txt", "content": "made\n"}),
            ("bash", {"command": "echo more >> made.txt"}),
            PLAN,
        )
    )
    rules = {"permissions": {"allow": ["Bash(echo:*)"]}}
    (project.home / ".retinue").mkdir(exist_ok=True)
    (project.home / ".retinue" / "settings.json").write_text(json.dumps(rules))
    process = project.start("-p", "go", "--permission-mode", "plan", "--output-format", "json", env=WAIT)
    item = answered(project, "Yes, and accept edits")
    assert (item["title"], item["detail"]) == ("Carry out this plan?", "1. Write made.txt")
    out, err = ended(process)
    assert json.loads(out)["result"] == "all done", err
    first, last = server.requests[0], server.requests[-1]
    assert not {"write", "edit"} & set(names(first))
    assert names(last)[: len(names(first))] == names(first), "what was cached stays"
    assert {"write", "edit"} <= set(names(last)) and last.body["system"] == first.body["system"]
    early, approved, _, _, again = told(last)
    assert "Read-only file system" in early and not (project.cwd / "early.txt").exists()
    assert "Approved. Plan mode is over" in approved and "write, edit" in approved
    assert "Plan mode is over already" in again
    assert (project.cwd / "made.txt").read_text() == "made\nmore\n"

    server.answer = lambda request: (
        Reply("", [("write", {"path": "later.txt", "content": "x"})])
        if not any("later.txt" in each for each in told(request))
        else Reply("resumed")
    )
    (run,) = project.json("runs", "list", "--json")["runs"]
    done = project.retinue("runs", "resume", run["id"], "go on")
    assert done.returncode == 0, done.stderr
    assert (project.cwd / "later.txt").exists()


def test_after_a_no_the_run_hears_why_and_stays_in_plan_mode(project: Project, serve: Any) -> None:
    server = serve(script(PLAN, ("write", {"path": "made.txt", "content": "made\n"})))
    process = project.start("-p", "go", "--permission-mode", "plan", env=WAIT)
    answered(project, "Use another file name.")
    ended(process)
    refused, denied = told(server.requests[-1])
    assert "Not approved: Use another file name. You are still in plan mode." in refused
    assert "plan mode" in denied and not (project.cwd / "made.txt").exists()


def test_headless_the_plan_is_the_answer_and_says_that_nothing_was_changed(project: Project, serve: Any) -> None:
    serve(script(PLAN))
    done = project.retinue("-p", "go", "--permission-mode", "plan")
    assert done.stdout.startswith("1. Write made.txt\n\nNothing was changed: this was plan mode"), done.stderr
