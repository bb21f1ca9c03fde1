"""`retinue runs steer` and `retinue runs stop`, on runs of another process, as a user drives them."""

import json
import re
import threading

from tests.program.model_server import Reply, Request


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


class Talk:
    """A run that works in small steps until it is told to finish."""

    def __init__(self) -> None:
        self.working = threading.Event()

    def answer(self, request: Request) -> Reply:
        self.working.set()
        if "please finish" in said(request):
            return Reply("finished as told")
        return Reply(f"Step {request.turn}. ", [("bash", {"command": f"sleep 0.2; echo {request.turn}"})])


def start(project, serve):
    talk = Talk()
    server = serve(talk.answer)
    process = project.start("run", "general-purpose", "Work", "--json", "--max-turns", "0")
    assert talk.working.wait(60)
    (row,) = project.json("runs", "list", "--json")["runs"]
    return process, row["id"], server


def test_a_run_of_another_process_hears_a_message_once(project, serve):
    process, run_id, server = start(project, serve)
    done = project.retinue("runs", "steer", run_id[:8], "please finish")
    assert done.returncode == 0, done.stderr
    assert "Delivered" in done.stdout
    out, err = process.communicate(timeout=60)
    assert json.loads(out)["details"]["results"][0]["output"] == "finished as told", err
    assert said(server.requests[-1]).count("please finish") == 1
    late = project.retinue("runs", "steer", run_id[:8], "one more", "--json")
    (result,) = json.loads(late.stdout)["results"]
    assert (late.returncode, result["accepted"]) == (1, False)
    assert f"retinue runs resume {run_id}" in result["answer"]


def test_a_message_may_come_from_a_file_and_a_secret_in_it_stays_out_of_the_log(project, serve):
    process, run_id, _ = start(project, serve)
    token = "ghp_" + "a1B2" * 9
    (project.cwd / "note.md").write_text(f"please finish with {token}")
    done = project.retinue("runs", "steer", run_id, "@note.md")
    assert done.returncode == 0
    assert "secret" in done.stderr
    process.communicate(timeout=60)
    stored = [path for path in project.home.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert stored == []


def test_a_run_of_another_process_is_stopped_and_keeps_its_words(project, serve):
    process, run_id, _ = start(project, serve)
    done = project.retinue("runs", "stop", run_id[:8], "--json")
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["accepted"], result["status"]) == (0, True, "stopped")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.match(r"Step \d+", json.loads(out)["details"]["results"][0]["output"])
    again = project.retinue("runs", "stop", run_id[:8])
    assert (again.returncode, "has ended (stopped)" in again.stderr) == (1, True)


def test_all_runs_of_a_project_are_stopped_and_nothing_to_stop_is_no_error(project, serve):
    process, _, _ = start(project, serve)
    done = project.retinue("runs", "stop", "--all")
    assert (done.returncode, "stopped" in done.stdout) == (0, True)
    process.communicate(timeout=60)
    none = project.retinue("runs", "stop", "--all", "--json")
    assert (none.returncode, json.loads(none.stdout)) == (0, {"results": []})
    assert project.retinue("runs", "stop").returncode == 2
    assert project.retinue("runs", "stop", "nobody").returncode == 2


def test_the_tree_of_a_main_agent_is_stopped_with_its_background_agents(project, serve):
    working = threading.Event()

    def answer(request: Request) -> Reply:
        if "Review" in said(request)[:200] and request.turn == 0:
            calls = [("Agent", {"prompt": f"look {n}", "subagent_type": "general-purpose"}) for n in range(2)]
            return Reply("Starting. ", calls)
        if '"look 1"' in said(request):
            working.set()
        return Reply("Looking. ", [("bash", {"command": "sleep 0.2"})])

    serve(answer)
    process = project.start("-p", "Review this", "--output-format", "json")
    assert working.wait(60)
    rows = project.json("runs", "list", "--json")["runs"]
    (main,) = [row["id"] for row in rows if row["depth"] == 0]
    done = project.retinue("runs", "stop", main[:8], "--tree", "--json")
    results = json.loads(done.stdout)["results"]
    assert (done.returncode, {result["status"] for result in results}) == (0, {"stopped"}), results
    assert len(results) == 3
    process.communicate(timeout=60)
    assert {row["ended"] for row in project.json("runs", "list", "--json")["runs"]} == {"stopped"}


def test_a_run_whose_process_was_killed_is_said_to_be_interrupted(project, serve):
    process, run_id, _ = start(project, serve)
    process.kill()
    process.communicate(timeout=60)
    for arguments in (("steer", run_id, "hello"), ("stop", run_id)):
        done = project.retinue("runs", *arguments)
        assert done.returncode == 1
        assert "interrupted" in done.stderr
        assert f"retinue runs resume {run_id}" in done.stderr
