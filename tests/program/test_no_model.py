"""Without a language model, nothing but a search ends as a success."""

from __future__ import annotations

import json

import pytest

from retinue import Retinue
from tests.program.conftest import Project


@pytest.mark.parametrize("agent", ["reviewer", "general-purpose", "researcher"])
def test_an_agent_that_does_more_than_search_is_refused(project: Project, agent: str) -> None:
    done = project.retinue("run", agent, "Where is beta?", "--json")
    (result,) = json.loads(done.stdout)["details"]["results"]
    assert (done.returncode, result["exitCode"], result["status"]) == (2, 2, "refused")
    assert "retinue models add" in result["error"]


def test_a_prompt_is_refused_in_every_format(project: Project) -> None:
    document = json.loads(project.retinue("-p", "Fix the bug", "--output-format", "json").stdout)
    assert (document["status"], document["is_error"], document["error"]["code"]) == ("refused", True, "no-model")
    streamed = project.retinue("-p", "Fix the bug", "--output-format", "stream-json")
    last = json.loads(streamed.stdout.splitlines()[-1])
    assert (streamed.returncode, last["ended"], last["failure"]["kind"]) == (2, "refused", "no-model")


@pytest.mark.parametrize(("task", "code"), [("Where is beta?", 0), ("Fix the bug in f0.txt", 2)])
def test_a_searching_agent_searches_and_does_nothing_else(project: Project, task: str, code: int) -> None:
    done = project.retinue("run", "Explore", task)
    assert done.returncode == code, done.stderr
    assert "f0.txt" in done.stdout + done.stderr


def test_whoever_names_the_planner_gets_it(project: Project) -> None:
    assert project.retinue("-p", "Where is beta?", "--model", "offline").returncode == 0
    assert project.retinue("-p", "Fix the bug", "--model", "offline").returncode == 2


async def test_the_outcome_of_the_library_is_no_success(project: Project) -> None:
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        run = await retinue.spawn("reviewer", "Review this", background=False)
        outcome = await run.wait()
    assert not outcome.ok and outcome.failure is not None and outcome.failure.kind == "no-model"
