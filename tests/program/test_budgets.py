"""Budgets as people set them: in an agent's file, on the command line, in settings, in a call."""

import json

import pytest

from tests.program.model_server import Reply, Request

BUSY = "---\nname: busy\ndescription: Reads one file after another.\nbudget: {budget}\n---\nRead every file you find.\n"


def reading(request: Request) -> Reply:
    """Reads on and on, until it is asked to wrap up."""
    last = request.body["messages"][-1]["content"]
    if request.turn and isinstance(last, list) and any("unfinished" in part.get("text", "") for part in last):
        return Reply("wrapped up")
    return Reply("", [("read", {"path": f"f{request.turn % 5}.txt", "offset": 1})])


def agent(project, budget: str) -> None:
    folder = project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "busy.md").write_text(BUSY.replace("{budget}", budget))


def test_the_budget_of_a_file_is_a_key_like_any_other_and_is_kept(project, serve):
    serve(reading)
    agent(project, "{tool_calls: 2, usd: 1.5}")
    assert project.retinue("agents", "lint").returncode == 0
    shown = project.json("agents", "show", "busy", "--json")
    assert shown["fates"]["budget"]["fate"] == "honoured"
    done = project.retinue("run", "busy", "Look around", "--json")
    (result,) = json.loads(done.stdout)["details"]["results"]
    assert (result["status"], result["limit"]) == ("steered", "tool_calls")
    assert len([item for item in result["displayItems"] if item["type"] == "toolCall"]) == 2


@pytest.mark.parametrize("budget", ["5 dollars", "{euro: 5}", "{usd: -1}", "{tokens: many}"])
def test_a_file_whose_budget_cannot_be_read_is_refused_with_the_reason(project, serve, budget):
    server = serve(reading)
    agent(project, budget)
    listed = project.json("agents", "list", "--json")
    (busy,) = [each for each in listed["agents"] if each["name"] == "busy"]
    (problem,) = busy["problems"]
    assert (problem["key"], problem["severity"], problem["refuses"]) == ("budget", "error", True)
    refused = project.retinue("run", "busy", "Look around")
    assert refused.returncode == 2
    assert problem["message"] in refused.stderr
    assert server.requests == []


def test_every_kind_of_budget_can_be_given_on_the_command_line(project, serve):
    serve(reading)
    done = project.retinue("run", "Explore", "Look", "--budget", "turns=2,tokens=100000", "--budget", "toolCalls=9")
    assert (done.returncode, done.stdout) == (0, "wrapped up\n"), done.stderr
    for wrong in ("turns", "turns=x", "euro=5", "usd=-1", ""):
        refused = project.retinue("run", "Explore", "Look", "--budget", wrong)
        assert refused.returncode == 2
        assert "budget" in refused.stderr


def test_no_agent_is_started_when_the_command_line_allows_none(project, serve):
    def answer(request: Request) -> Reply:
        return Reply("told") if request.turn else Reply("", [("Agent", {"prompt": "child"})])

    server = serve(answer)
    done = project.retinue("-p", "Go", "--budget", "spawns=0")
    assert (done.returncode, done.stdout) == (0, "told\n")
    (refused,) = server.requests[-1].results
    assert "0 of 0 agents" in json.dumps(refused)
    assert "retry" not in json.dumps(refused)


def test_a_call_gives_its_agent_a_budget_and_the_tighter_one_counts(project, serve):
    agent(project, "{turns: 3}")

    def answer(request: Request) -> Reply:
        if "look around" in json.dumps(request.body["messages"][0]):
            return reading(request)
        if request.turn:
            return Reply("read it")
        call = {"prompt": "look around", "subagent_type": "busy", "run_in_background": False}
        return Reply("", [("Agent", {**call, "budget": {"turns": 2, "tokens": 10_000_000}})])

    server = serve(answer)
    done = project.retinue("-p", "Go", "--output-format", "json")
    (result,) = server.requests[-1].results
    assert "wrapped up" in json.dumps(result)
    rows = project.json("runs", "list", "--json")["runs"]
    assert [row["turns"] for row in rows if row["depth"] == 1] == [2]
    assert json.loads(done.stdout)["result"] == "read it"


@pytest.mark.parametrize("value", ["-1", '"a lot"', "true", "1.5"])
def test_a_budget_of_the_settings_that_is_misread_never_becomes_no_budget(project, serve, value):
    server = serve(reading)
    (project.cwd / ".retinue").mkdir()
    (project.cwd / ".retinue" / "settings.json").write_text(f'{{"budget.tokens": {value}}}')
    done = project.retinue("-p", "Go")
    assert done.returncode == 2
    assert "budget.tokens" in done.stderr and "settings.json" in done.stderr
    assert server.requests == []


@pytest.mark.parametrize("key", ["budget.turns", "sandbox.processes", "sandbox.cpuSeconds"])
def test_a_limit_that_was_a_setting_once_is_refused_and_never_lost_in_silence(project, serve, key):
    server = serve(reading)
    section, name = key.split(".")
    folder = project.cwd / ".retinue"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({section: {name: 5}}))
    refused = project.retinue("-p", "go")
    assert refused.returncode == 2
    assert key in refused.stderr and "no setting any more" in refused.stderr
    assert server.requests == []


def test_a_spent_budget_can_be_raised_and_other_options_of_a_resume_leave_it_alone(project, serve):
    serve(reading)
    first = project.retinue("run", "Explore", "Look", "--max-budget-usd", "0.0000001", "--json")
    run_id = json.loads(first.stdout)["details"]["runId"]
    again = project.retinue("runs", "resume", run_id, "--max-turns", "3", "--json")
    (result,) = json.loads(again.stdout)["details"]["results"]
    assert result["status"] == "over-budget", "it must not be forgotten because another limit was given"
    more = project.retinue("runs", "resume", run_id, "--max-budget-usd", "5", "--max-turns", "3", "--json")
    (result,) = json.loads(more.stdout)["details"]["results"]
    assert result["status"] == "steered"
