"""The script of the GitHub Action, as a runner calls it: with variables, a checkout and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

ACTION = Path(__file__).parents[2] / "action"
CASE = """cases:
  - name: finds the file
    task: Where is beta?
    expect:
      ended: completed
"""


def call(project: Project, mode: str, **given: str) -> subprocess.CompletedProcess[str]:
    programs = Path(sys.executable).parent
    environment = project.environment | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "RETINUE_ACTION_MODE": mode,
        "GITHUB_STEP_SUMMARY": str(project.home / "summary.md"),
        "GITHUB_OUTPUT": str(project.home / "output"),
        **given,
    }
    return subprocess.run(
        ["bash", str(ACTION / "run.sh")], cwd=project.cwd, env=environment, capture_output=True, text=True, check=False
    )


def git(project: Project, *arguments: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *names, *arguments], cwd=project.cwd, check=True, capture_output=True)


def test_an_agent_runs_and_its_answer_and_transcript_are_kept(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("It is in f0.txt."))
    done = call(project, "run", RETINUE_ACTION_AGENT="Explore", RETINUE_ACTION_TASK="Where is $(touch pwned) beta?")
    assert done.returncode == 0, done.stderr
    report = project.cwd / "retinue-report"
    assert (report / "answer.md").read_text() == "It is in f0.txt.\n"
    assert "run.ended" in (report / "transcript.jsonl").read_text()
    assert "It is in f0.txt." in (project.home / "summary.md").read_text()
    assert (project.home / "output").read_text() == "report=retinue-report\n"
    assert "$(touch pwned)" in str(project.server.requests[0].body) and not (project.cwd / "pwned").exists()


def test_a_run_that_fails_fails_the_step(project: Project, serve: Any) -> None:
    serve(lambda request: Reply(status=401))
    done = call(project, "run", RETINUE_ACTION_AGENT="Explore", RETINUE_ACTION_TASK="Where?")
    assert done.returncode == 1


def test_a_review_sees_the_changes_of_the_branch(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("No problem."))
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "base")
    git(project, "update-ref", "refs/remotes/origin/main", "HEAD")
    (project.cwd / "f0.txt").write_text("alpha 0\ngamma\n")
    git(project, "commit", "-qam", "change")
    done = call(project, "review", GITHUB_BASE_REF="main", RETINUE_ACTION_AGENT="Explore")
    assert done.returncode == 0, done.stderr

    def first(request: Request) -> str:
        return str(request.body["messages"])

    assert "+gamma" in first(project.server.requests[0]) and "-beta" in first(project.server.requests[0])


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        ("test", {"GITHUB_EVENT_NAME": "pull_request_target"}, "Use pull_request"),
        ("run", {}, "needs a task"),
        ("review", {}, "needs a pull request"),
        ("deploy", {}, "There is no mode 'deploy'"),
    ],
)
def test_what_cannot_be_done_is_refused(project: Project, mode: str, given: dict[str, str], said: str) -> None:
    done = call(project, mode, **given)
    assert done.returncode == 2 and said in done.stderr


def test_tests_write_a_junit_document(project: Project) -> None:
    agents = project.cwd / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "finder.md").write_text("---\nname: finder\ndescription: Finds.\n---\nYou find.\n")
    (agents / "finder.test.yaml").write_text(CASE)
    done = call(project, "test")
    assert "<testsuite" in (project.cwd / "retinue-report" / "junit.xml").read_text(), done.stderr
    assert "finds the file" in done.stdout + done.stderr


def test_every_input_reaches_the_script_as_a_variable() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    step = action["runs"]["steps"][0]
    assert "${{" not in step["run"], "text of an input in a command would be run"
    script = (ACTION / "run.sh").read_text() + step["run"]
    for name in step["env"]:
        assert name in script, name
    assert {value[len("${{ inputs.") : -len(" }}")] for value in step["env"].values()} == set(action["inputs"])


@pytest.mark.parametrize("agent", ["reviewer", "general-purpose"])
def test_a_missing_secret_fails_the_step(project: Project, agent: str) -> None:
    done = call(project, "run", RETINUE_ACTION_AGENT=agent, RETINUE_ACTION_TASK="Edit f0.txt: replace alpha by beta")
    assert done.returncode == 2, done.stderr
    assert "No language model is set up" in (project.cwd / "retinue-report" / "answer.md").read_text()
