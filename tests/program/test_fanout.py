"""A main agent with a retinue: `retinue -p` spawns, is notified, steers, waits and answers."""

import json
import re
import signal

import pytest

from tests.program.model_server import Reply, Request


def texts(request: Request) -> str:
    """Everything the user side of the conversation says, tool results included."""
    return json.dumps(request.body["messages"], ensure_ascii=False)


def task(request: Request) -> str:
    content = request.body["messages"][0]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def announced(request: Request) -> list[str]:
    return re.findall(r"<task-id>([^<]+)</task-id>", texts(request))


def fan_out(count: int, **options):
    """The main agent starts `count` agents at once and answers when all have been announced."""

    def answer(request: Request) -> Reply:
        if "look at angle" in task(request):
            return Reply(f"finding of {task(request).split()[-1]}")
        if request.turn == 0:
            calls = [
                (
                    "Agent",
                    {
                        "prompt": f"look at angle {n}",
                        "description": f"angle {n}",
                        "subagent_type": "Explore",
                        **options,
                    },
                )
                for n in range(count)
            ]
            return Reply("Starting.", calls)
        found = sorted(set(re.findall(r"finding of (\d+)", texts(request))), key=int)
        return Reply(f"heard {len(announced(request))}, found {' '.join(found)}")

    return answer


def test_background_agents_are_announced_exactly_once_and_the_main_agent_waits_for_them(project, serve):
    server = serve(fan_out(3))
    document = project.json("-p", "Review this from three angles", "--output-format", "json")
    assert (document["status"], document["result"]) == ("completed", "heard 3, found 0 1 2")
    last = max((r for r in server.requests if "Review" in task(r)), key=lambda r: len(r.body["messages"]))
    assert len(announced(last)) == len(set(announced(last))) == 3
    rows = project.json("runs", "list", "--json")["runs"]
    assert sorted(row["ended"] for row in rows) == ["completed"] * 4
    assert {row["depth"] for row in rows} == {0, 1}


def test_more_agents_than_slots_are_queued_and_all_of_them_run(project, serve):
    serve(fan_out(9))
    done = project.retinue("-p", "Review this", "--output-format", "json", env={"RETINUE_MAX_CONCURRENT": "2"})
    assert json.loads(done.stdout)["result"] == "heard 9, found 0 1 2 3 4 5 6 7 8"


@pytest.mark.parametrize("mode", ["async", "smart", "group"])
def test_every_join_mode_tells_every_end_exactly_once(project, serve, mode):
    serve(fan_out(4))
    done = project.retinue("-p", "Review", "--output-format", "json", env={"RETINUE_DEFAULT_JOIN_MODE": mode})
    assert json.loads(done.stdout)["result"] == "heard 4, found 0 1 2 3"


def test_foreground_agents_give_their_result_as_the_tool_result_and_no_announcement(project, serve):
    serve(fan_out(2, run_in_background=False))
    document = project.json("-p", "Review", "--output-format", "json")
    assert document["result"] == "heard 0, found 0 1"


def test_reading_a_result_cancels_its_announcement(project, serve):
    def answer(request: Request) -> Reply:
        if "look at" in task(request):
            return Reply("the finding")
        if request.turn == 0:
            return Reply(calls=[("Agent", {"prompt": "look at it", "subagent_type": "Explore"})])
        if request.turn == 1:
            (agent_id,) = re.findall(r"Agent ID: (\S+?)\\n", texts(request))
            return Reply(calls=[("get_subagent_result", {"agent_id": agent_id, "wait": True})])
        return Reply(f"heard {len(announced(request))}, {'the finding' in texts(request)}")

    serve(answer)
    assert project.json("-p", "Review", "--output-format", "json")["result"] == "heard 0, True"


def test_an_agent_can_be_steered_while_it_works(project, serve):
    def answer(request: Request) -> Reply:
        if "look at" in task(request):
            if "only src" in texts(request):
                return Reply("looked in src")
            return Reply(calls=[("bash", {"command": "sleep 0.2"})])
        if request.turn == 0:
            return Reply(calls=[("Agent", {"prompt": "look at it", "subagent_type": "general-purpose"})])
        if request.turn == 1:
            (agent_id,) = re.findall(r"Agent ID: (\S+?)\\n", texts(request))
            return Reply(calls=[("steer_subagent", {"agent_id": agent_id, "message": "only src"})])
        return Reply("looked in src" if "looked in src" in texts(request) else "waiting")

    serve(answer)
    assert project.json("-p", "Review", "--output-format", "json")["result"] == "looked in src"


def test_an_unknown_type_falls_back_with_a_note_and_a_child_cannot_nest_past_the_limit(project, serve):
    depths = []

    def answer(request: Request) -> Reply:
        names = [tool["name"] for tool in request.body.get("tools", [])]
        if request.turn == 0:
            depths.append("Agent" in names)
            if "Agent" in names:
                call = {"prompt": "go deeper", "subagent_type": "nobody" if len(depths) == 1 else "general-purpose"}
                return Reply(calls=[("Agent", {**call, "run_in_background": False})])
        return Reply("bottom" if "using general-purpose" not in texts(request) else "noted")

    serve(answer)
    done = project.retinue("-p", "Start", "--output-format", "json")
    assert json.loads(done.stdout)["result"] == "noted"
    assert depths == [True, True, True, False]


def test_the_stream_carries_the_whole_tree(project, serve):
    serve(fan_out(2))
    lines = [
        json.loads(line)
        for line in project.retinue("-p", "Review", "--output-format", "stream-json").stdout.splitlines()
    ]
    root = lines[0]["run_id"]
    assert {line["root_id"] for line in lines} == {root}
    assert len({line["run_id"] for line in lines}) == 3
    assert {line["parent_id"] for line in lines if line["run_id"] != root} == {root}
    assert (lines[-1]["type"], lines[-1]["run_id"]) == ("outcome", root)
    assert lines[-1]["tree_usage"]["input"] > lines[-1]["usage"]["input"]


def test_an_interrupt_stops_the_main_agent_and_everything_can_be_resumed(project, serve):
    def answer(request: Request) -> Reply:
        if "look at" in task(request):
            return Reply("half", hang=True)
        if request.turn == 0:
            return Reply(calls=[("Agent", {"prompt": "look at it", "subagent_type": "Explore"})])
        return Reply("waiting for it")

    server = serve(answer)
    process = project.start("-p", "Review")
    while not any("look at" in task(request) for request in server.requests):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    rows = project.json("runs", "list", "--json")["runs"]
    assert len(rows) == 2
    assert all(row["state"] in ("ended", "interrupted") for row in rows)


def test_a_fan_out_above_the_threshold_is_refused_with_an_estimate_where_nobody_can_be_asked(project, serve):
    server = serve(fan_out(4))
    done = project.retinue("-p", "Review", "--output-format", "json", env={"RETINUE_QUOTE_ABOVE": "2"})
    assert json.loads(done.stdout)["result"].startswith("heard 2,")
    refused = [result for request in server.requests for result in request.results if result.get("is_error")]
    assert "quoteAbove" in json.dumps(refused)


def test_a_budget_holds_for_the_whole_tree(project, serve):
    serve(fan_out(3))
    done = project.retinue("-p", "Review", "--output-format", "json", "--max-budget-usd", "0.0000001")
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"]) == (1, "over-budget")
    assert document["limit"] == "cost"
    rows = project.json("cost", "--json")
    assert rows
