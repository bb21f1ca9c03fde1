"""kill -9 of a worker at each moment of a run: while it waits, speaks, works, and when it has ended."""

import json
import signal
import threading

import pytest

from tests.program.cluster_scene import TURNS, Gate, result, steps
from tests.program.model_server import Reply

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow


def is_whole(scene, run_id):
    """Nothing of the run's record is missing or doubled."""
    events = scene.events(run_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert sum(event["type"] == "run.ended" for event in events) == 1
    return events


def start_run(scene, server):
    """Start a worker and a run, and return both when the model is asked for the second time."""
    worker = scene.worker()
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    scene.until(lambda: len(server.requests) == 2)
    return worker, process


def replace_worker(scene, worker):
    """Start another worker, and kill the first one."""
    scene.worker()
    scene.ready(2)
    worker.kill()


def test_while_it_waits_for_a_slot(scene, serve):
    gate = Gate(1)
    serve(gate.answer)
    first = scene.worker("--concurrency", "1")
    scene.ready(1)
    processes = [scene.run(task, "--json") for task in ("Do all steps", "Do them too")]
    assert gate.reached.wait(60), first.said
    scene.until(lambda: len(scene.json("runs", "list", "--json")["runs"]) == 2)
    first.kill()
    gate.open.set()
    second = scene.worker()
    for process in processes:
        assert scene.file(result(process)["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    for row in scene.json("runs", "list", "--json")["runs"]:
        is_whole(scene, row["id"])
        assert second.served(row["id"])


def test_while_the_model_speaks(scene, serve):
    def answer(request):
        if request.turn == 1 and len(server.requests) == 2:
            return Reply("Half of a senten", hang=True, speaks=True)
        return steps(request)

    server = serve(answer)
    first, process = start_run(scene, server)
    run_id = scene.only_run()["id"]
    replace_worker(scene, first)
    found = result(process)
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    calls = [event["call"]["id"] for event in is_whole(scene, run_id) if event["type"] == "tool.started"]
    assert len(calls) == len(set(calls)) == TURNS


def test_in_a_tool_whose_effect_is_named_as_unknown(scene, serve):
    def answer(request):
        if request.turn == 1:
            return Reply("Step 1. ", [("bash", {"command": "echo 1 >> done.txt; sleep 50"})])
        return steps(request)

    server = serve(answer)
    first, process = start_run(scene, server)
    run_id = scene.only_run()["id"]
    scene.until(lambda: sum(event["type"] == "tool.started" for event in scene.events(run_id)) == 2)
    replace_worker(scene, first)
    found = result(process)
    # What the call had written was on the machine that is gone: the model is told, and nothing claims it is there.
    assert scene.file(found["branch"], "done.txt").split() == ["0", "2", "3"]
    said = json.dumps(server.requests[2].body["messages"])
    assert "You are on another machine now" in said
    assert "The effect of this call is unknown" in said
    is_whole(scene, run_id)


def test_when_it_has_ended_and_nobody_has_heard_of_it(scene, serve):
    gate = Gate(TURNS)
    serve(gate.answer)
    worker = scene.worker()
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    assert gate.reached.wait(60), worker.said
    process.send_signal(signal.SIGSTOP)
    gate.open.set()
    scene.until(lambda: scene.only_run()["state"] == "ended")
    worker.kill()
    process.send_signal(signal.SIGCONT)
    found = result(process)
    assert found["output"].startswith("all steps done")
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    is_whole(scene, scene.only_run()["id"])


def test_an_interrupted_run_goes_before_those_that_were_sent_later(scene, serve):
    gate = threading.Event()

    def answer(request):
        gate.wait(60)
        return Reply("done")

    server = serve(answer)
    workers = [scene.worker("--concurrency", "1") for _ in range(2)]
    scene.ready(2)
    processes = []
    for number, asked in enumerate((1, 2, 2, 2), 1):
        processes.append(scene.run(f"Task {number}", "--json"))
        scene.until(lambda count=number: len(scene.json("runs", "list", "--json")["runs"]) == count)
        scene.until(lambda count=asked: len(server.requests) == count)
    ids = [row["id"] for row in reversed(scene.json("runs", "list", "--json")["runs"])]
    dead, alive = workers if workers[0].served(ids[0]) else reversed(workers)
    wait_in_queue(scene, 4)
    dead.kill()
    scene.until(lambda: any(line.startswith(ids[0]) and "offered again" in line for line in alive.said))
    wait_in_queue(scene, 4)
    gate.set()
    for process in processes:
        result(process)
    served = [line.partition(":")[0] for line in alive.said if ": attempt" in line]
    assert served[1] == ids[0], (ids, alive.said)


def wait_in_queue(scene, count):
    import psycopg

    with psycopg.connect(scene.url, autocommit=True) as server:
        query = "SELECT count(*) FROM retinue.placements WHERE queue <> ''"
        scene.until(lambda: server.execute(query).fetchone()[0] == count)
