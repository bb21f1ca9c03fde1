"""Schedules with real processes: two daemons on one project, one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fork_server import run_program

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.md").write_text("# Notes\nThe parser reads frontmatter.\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home")}
    return folder, environment


def retinue(project: tuple[Path, dict[str, str]], *argv: str) -> subprocess.CompletedProcess[str]:
    folder, environment = project
    return run_program(argv, folder, environment)


def daemon(project: tuple[Path, dict[str, str]]) -> subprocess.Popen[str]:
    folder, environment = project
    command = [sys.executable, "-m", "retinue", "schedule", "daemon"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def jobs(project: tuple[Path, dict[str, str]]) -> list[dict]:
    return json.loads(retinue(project, "schedule", "list", "--json").stdout)["jobs"]


def test_two_daemons_fire_each_slot_once_and_one_outlives_the_other(project) -> None:
    assert (
        retinue(
            project, "schedule", "add", "Explore", "Where is the parser?", "--when", "2s", "--name", "look"
        ).returncode
        == 0
    )
    daemons = [daemon(project), daemon(project)]
    try:
        _until(lambda: jobs(project)[0]["runs"] >= 2)
        daemons[0].send_signal(signal.SIGKILL)
        daemons[0].wait()
        before = jobs(project)[0]["runs"]
        _until(lambda: jobs(project)[0]["runs"] >= before + 2)
    finally:
        for each in daemons:
            each.send_signal(signal.SIGTERM)
        said = daemons[1].communicate(timeout=30)[1]
    assert daemons[1].returncode == 0
    assert "started as run" in said and "ending" in said
    runs = json.loads(retinue(project, "runs", "list", "--json").stdout)["runs"]
    fired = jobs(project)[0]["runs"]
    assert fired - 1 <= len(runs) <= fired  # the killed one may have claimed a slot it could not start


def test_once_fires_what_is_due_and_ends(project) -> None:
    retinue(project, "schedule", "add", "Explore", "Where is the parser?", "--when", "+1s")
    time.sleep(1.1)
    done = retinue(project, "schedule", "daemon", "--once")
    assert done.returncode == 0, done.stderr
    (job,) = jobs(project)
    assert (job["runs"], job["enabled"], job["last_status"]) == (1, False, "success")
    assert retinue(project, "schedule", "list").stdout.lstrip(" 1").startswith("✓")


def test_what_is_due_while_nothing_fires_it_is_listed_as_due_with_what_would(project) -> None:
    retinue(project, "schedule", "add", "Explore", "Where?", "--when", "+1s")
    _until(lambda: "next" not in retinue(project, "schedule", "list").stdout)
    listed = retinue(project, "schedule", "list")
    assert " · due " in listed.stdout and " ago · " in listed.stdout
    assert "retinue schedule daemon" in listed.stderr


def test_looking_makes_nothing(project, tmp_path: Path) -> None:
    assert jobs(project) == []
    assert not (tmp_path / "home").exists()


def test_run_now_prints_the_answer_and_counts_no_slot(project) -> None:
    retinue(project, "schedule", "add", "Explore", "Where is the parser?", "--when", "1h", "--name", "look")
    done = retinue(project, "schedule", "run", "look")
    assert done.returncode == 0 and "notes.md" in done.stdout
    assert jobs(project)[0]["last_status"] == "success"


def _until(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.2)
