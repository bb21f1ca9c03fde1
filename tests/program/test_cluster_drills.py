"""Drills of a cluster: a cut cable, clocks that differ, versions that differ, and a workspace that is hard to carry.

RETINUE_DRILL_SEEDS=5 RETINUE_DRILL_CUT=30 RETINUE_DRILL_MB=200 pytest tests/program/test_cluster_drills.py
"""

import os
import random
import subprocess
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.program.cluster_network import CAN_CUT, Cable
from tests.program.cluster_scene import TURNS, Gate, result, steps
from tests.program.model_server import Reply

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow
SEEDS = range(int(os.environ.get("RETINUE_DRILL_SEEDS", "1")))
CUT_SECONDS = float(os.environ.get("RETINUE_DRILL_CUT", "6"))
MEGABYTES = int(os.environ.get("RETINUE_DRILL_MB", "9"))
OTHER_CLOCK = """
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _time_ns() + {seconds} * 10**9
"""
OTHER_VERSION = "import retinue.core.version\nretinue.core.version.__version__ = '0.0.1'\n"


def in_its_process(folder, text):
    """Return variables with which a program starts with `text`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}:{before}" if before else str(folder)}


def check_whole(scene, found):
    """Every step was done once, and nothing of the run's record is missing or doubled."""
    assert scene.file(found["branch"], "done.txt").split() == ["0", "1", "2", "3"]
    events = scene.events(scene.only_run()["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert sum(event["type"] == "run.ended" for event in events) == 1
    calls = [event["call"]["id"] for event in events if event["type"] == "tool.started"]
    assert len(calls) == len(set(calls)) == TURNS


@pytest.mark.skipif(not CAN_CUT, reason="network namespaces need root and the program ip")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_whose_cable_was_cut_is_replaced_and_doubles_nothing(scene, serve, seed):
    turn = random.Random(seed).randrange(TURNS)
    gate = Gate(turn)
    server = serve(gate.answer)
    place = urlsplit(scene.url)
    folder = parse_qs(place.query)["host"][0]
    model = urlsplit(server.url)
    with Cable() as cable:
        database = cable.forward(f"{folder}/.s.PGSQL.{place.port or 5432}")
        far = {
            "RETINUE_DATABASE": f"postgresql://{place.username}@{database}{place.path}",
            "ANTHROPIC_BASE_URL": f"http://{cable.forward((model.hostname, model.port))}",
        }
        first = scene.worker(variables=far, before=cable.prefix)
        scene.ready(1)
        process = scene.run("Do all steps", "--json")
        assert gate.reached.wait(60), first.said
        second = scene.worker()
        scene.ready(2)
        cable.cut()
        began = time.monotonic()
        scene.until(lambda: len(server.requests) > turn + 1)
        while time.monotonic() < began + CUT_SECONDS:
            time.sleep(0.2)
        cable.heal()
        gate.open.set()
        found = result(process)
        check_whole(scene, found)
        assert second.served(scene.only_run()["id"])
        # It comes back as a worker of the same cluster.
        scene.until(lambda: first.process.pid in [each["pid"] for each in scene.list_workers()])
        scene.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_that_are_two_minutes_apart_change_nothing(scene, serve, seed, tmp_path):
    ahead = random.Random(seed).choice([60, -60])
    gate = Gate(1)
    server = serve(gate.answer)
    fast = in_its_process(tmp_path / "one", OTHER_CLOCK.format(seconds=ahead))
    slow = in_its_process(tmp_path / "two", OTHER_CLOCK.format(seconds=-ahead))
    first = scene.worker(variables=fast)
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    assert gate.reached.wait(60), first.said
    second = scene.worker(variables=slow)
    scene.ready(2)
    # Longer than a worker may be silent.
    time.sleep(4)
    assert len(server.requests) == 2, "nobody took it from a worker that lives"
    assert all(each["heartbeat"] < 3 for each in scene.list_workers())
    first.kill()
    scene.until(lambda: len(server.requests) > 2, 30)
    gate.open.set()
    check_whole(scene, result(process))
    assert second.served(scene.only_run()["id"])


def test_a_worker_of_another_version_is_refused_with_a_sentence(scene, serve, tmp_path):
    serve(steps)
    old = scene.worker(variables=in_its_process(tmp_path / "old", OTHER_VERSION))
    scene.ready(1)
    process = scene.run("Do all steps", "--json")
    scene.until(lambda: scene.json("runs", "list", "--json")["runs"])
    run_id = scene.only_run()["id"]
    scene.until(lambda: scene.warnings(run_id))
    assert "runs Retinue 0.0.1, and this is" in scene.warnings(run_id)[0]
    assert not old.served(run_id)
    scene.worker()
    check_whole(scene, result(process))


def test_a_large_workspace_with_ignored_files_and_a_submodule_travels(scene, serve, tmp_path):
    def answer(request):
        if request.turn == 0:
            command = "{ ls -A; echo lib: $(ls lib | wc -l); wc -c < big.bin; } > seen.txt; cp big.bin copy.bin"
            return Reply("", [("bash", {"command": command})])
        return Reply("seen")

    serve(answer)
    cwd = scene.project.cwd
    git = ["git", "-C", str(cwd), "-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
    other = tmp_path / "other"
    subprocess.run(["git", "clone", "-q", str(cwd), str(other)], check=True)
    subprocess.run([*git, "submodule", "add", "-q", str(other), "lib"], check=True)
    (cwd / ".gitignore").write_text("*.log\nsecret.env\n")
    (cwd / "big.bin").write_bytes(random.Random(0).randbytes(MEGABYTES * 2**20))
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "large"], check=True)
    (cwd / "secret.env").write_text("PASSWORD=1\n")
    (cwd / "noise.log").write_text("noise\n")
    (cwd / "new.txt").write_text("not committed\n")
    scene.worker()
    scene.ready(1)
    began = time.monotonic()
    process = scene.run("Look", "--json")
    found = result(process)
    print(f"{MEGABYTES} MB out and a branch back: {time.monotonic() - began:.1f} s")
    seen = scene.file(found["branch"], "seen.txt").split("\n")
    assert {"big.bin", "new.txt", "lib", "lib: 0", str(MEGABYTES * 2**20)} <= set(seen)
    assert not {"secret.env", "noise.log"} & set(seen)
    assert any("submodules are empty" in note for note in found["notes"])


def test_what_a_provider_tells_one_worker_holds_the_others(scene, serve):
    at = []

    def answer(request):
        at.append(time.monotonic())
        if len(at) == 1:
            return Reply(status=429, headers={"retry-after": "15"})
        return steps(request)

    serve(answer)
    for _ in range(2):
        scene.worker("--concurrency", "1")
    scene.ready(2)
    one = scene.run("Do all steps", "--json")
    scene.until(lambda: at)
    # Two heartbeats and a look later the other worker knows.
    time.sleep(4)
    other = scene.run("Do all steps", "--json")
    result(one), result(other)
    assert at[1] - at[0] >= 15
    assert all(any("attempt" in line for line in worker.said) for worker in scene.workers)
