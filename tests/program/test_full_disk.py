"""The program on a disk that is full for a while: the person is told, and everything goes on when there is space."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.frontends.server.conftest import serving  # noqa: F401 - a fixture
from tests.frontends.tui.test_app_tmux import terminal  # noqa: F401 - a fixture
from tests.program.cluster_scene import ClusterScene, result
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self) -> None:
        descriptor = os.open(self._filler, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            while True:
                os.write(descriptor, bytes(4096))
        except OSError:
            os.close(descriptor)

    def free(self) -> None:
        self._filler.unlink()


@contextmanager
def mounted(folder: Path) -> Iterator[SmallDisk]:
    if not sys.platform.startswith("linux") or os.geteuid():
        pytest.skip("only root may mount")
    folder.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def disk(project: Project) -> Iterator[SmallDisk]:
    with mounted(project.home / ".retinue") as made:
        yield made


def work(request: Request) -> Reply:
    """Calls tools for as long as nobody says something else."""
    time.sleep(0.2)
    if "go on" in str(request.body["messages"][-1]):
        return Reply("All is well.")
    return Reply("x" * 500, [("write", {"path": f"f{request.turn % 5}.txt", "content": "x"})])


def state(project: Project) -> str:
    return str(project.json("runs", "list", "--json")["runs"][0]["state"])


def wait_for(project: Project, wanted: str) -> None:
    deadline = time.monotonic() + 20
    while state(project) != wanted:
        assert time.monotonic() < deadline, state(project)


@pytest.mark.slow
def test_the_app_says_that_the_disk_is_full_and_goes_on_with_the_next_words(
    project: Project,
    serve,
    disk: SmallDisk,
    terminal,  # noqa: F811
) -> None:
    serve(work)
    window = terminal()
    window.run("retinue")
    window.see("Say what to do")
    window.type("Work")
    window.press("Enter")
    window.see("write f2.txt")
    disk.fill()
    window.see("the disk is full", gone=("esc to interrupt",))
    disk.free()
    wait_for(project, "interrupted")
    window.type("go on")
    window.press("Enter")
    window.see("All is well.")


@pytest.mark.slow
def test_a_script_ends_when_the_disk_is_full_and_its_run_can_be_resumed(
    project: Project, serve, disk: SmallDisk
) -> None:
    server = serve(work)
    running = project.start("-p", "Work")
    while len(server.requests) < 3:
        assert running.poll() is None
        time.sleep(0.05)
    disk.fill()
    _, said = running.communicate(timeout=30)
    assert running.returncode == 1
    assert "the disk is full" in said
    disk.free()
    assert state(project) == "interrupted"
    run_id = project.json("runs", "list", "--json")["runs"][0]["id"]
    done = project.retinue("runs", "resume", run_id, "go on")
    assert "All is well." in done.stdout


@pytest.mark.slow
def test_clients_of_a_server_are_told_that_the_disk_is_full(
    project: Project,
    serve,
    disk: SmallDisk,
    serving,  # noqa: F811
) -> None:
    model = serve(work)
    server = serving()
    run_id = server.post("/v1/runs", {"agent": "general-purpose", "task": "Work"}, 201)["id"]
    events = server.stream(f"/v1/runs/{run_id}/events")
    said: list[tuple[int, str]] = []

    def ask() -> None:
        body = {"model": "general-purpose", "messages": [{"role": "user", "content": "Work"}]}
        status, _, document = server.request("POST", "/v1/chat/completions", body)
        said.append((status, str(document)))

    client = threading.Thread(target=ask)
    client.start()
    while len(model.requests) < 6:
        time.sleep(0.05)
    disk.fill()
    assert "the disk is full" in events.until("run.interrupted")[-1][1]["detail"]
    client.join(20)
    assert said[0][0] == 422 and "the disk is full" in said[0][1]
    status, _, document = server.request("POST", f"/v1/runs/{run_id}/stop", {})
    assert status == 409 and "the disk is full" in document["detail"]
    disk.free()
    server.until(f"/v1/runs/{run_id}", lambda found: found["run"]["state"] == "interrupted")
    server.post(f"/v1/runs/{run_id}/resume", {"prompt": "go on"})
    assert server.ended(run_id)["run"]["ended"] == "completed"


@pytest.mark.slow
def test_a_worker_with_a_full_disk_fails_no_run(scene: ClusterScene, serve) -> None:
    pytest.importorskip("dbos")
    serve(lambda request: Reply("All is well."))
    with mounted(scene.folder / "worker-0") as disk:
        worker = scene.worker("--concurrency", "1")
        scene.ready(1)
        disk.fill()
        process = scene.run("Work", "--json")
        scene.until(lambda: any("No space left" in line for line in worker.said))
        assert scene.only_run()["state"] == "queued", worker.said
        disk.free()
        assert result(process)["output"] == "All is well."
        scene.close()
