"""Workers of a cluster as processes of their own, each with its own home, around one project and one database."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.program.model_server import Reply, Request

_numbers = itertools.count(1)
TURNS = 4


class WorkerProcess:
    """`retinue worker` as an operator starts it."""

    def __init__(self, environment: dict[str, str], home: Path, *arguments: str, before: tuple[str, ...] = ()) -> None:
        home.mkdir(parents=True, exist_ok=True)
        env = environment | {"HOME": str(home), "RETINUE_HOME": str(home / ".retinue")}
        self.home = home
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "retinue", "worker", *arguments],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=lambda: self.said.extend(self.process.stderr or ()), daemon=True).start()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def served(self, run_id: str) -> bool:
        return any(line.startswith(run_id) and "attempt" in line for line in self.said)


class ClusterScene:
    """One project in a git repository, and its workers."""

    def __init__(self, project: Any, url: str, folder: Path) -> None:
        self.project, self.url, self.folder = project, url, folder
        self.name = f"scene-{os.getpid()}-{next(_numbers)}"
        self.workers: list[WorkerProcess] = []
        self.git("init", "-q", "-b", "main")
        (project.cwd / "README.md").write_text("a project\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "first")

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.project.cwd), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    @property
    def variables(self) -> dict[str, str]:
        return {"RETINUE_DATABASE": self.url, "RETINUE_DATABASE_PROJECT": self.name}

    @property
    def worker_variables(self) -> dict[str, str]:
        return dict(self.project.environment | {"RETINUE_DATABASE": self.url})

    def worker(
        self,
        *arguments: str,
        keys: bool = True,
        variables: dict[str, str] | None = None,
        before: tuple[str, ...] = (),
    ) -> WorkerProcess:
        environment = self.worker_variables | (variables or {})
        if not keys:
            del environment["ANTHROPIC_API_KEY"], environment["ANTHROPIC_BASE_URL"]
        made = WorkerProcess(environment, self.folder / f"worker-{len(self.workers)}", *arguments, before=before)
        self.workers.append(made)
        return made

    def ready(self, count: int) -> None:
        """Wait until so many workers of this scene are there."""
        mine = {each.process.pid for each in self.workers}
        self.until(lambda: len([w for w in self.list_workers() if w["pid"] in mine]) >= count)

    def list_workers(self) -> list[dict[str, Any]]:
        return list(self.json("workers", "list", "--json")["workers"])

    def json(self, *arguments: str) -> Any:
        done = self.project.retinue(*arguments, env=self.variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        return self.project.start("run", "general-purpose", *arguments, "--on", "cluster", env=self.variables)

    def run_to(
        self, gate: Gate, task: str = "Do all steps", start: Callable[[], WorkerProcess] | None = None
    ) -> tuple[WorkerProcess, subprocess.Popen[str]]:
        """Start a worker and a run. Return both when the run is at the gate."""
        first = (start or self.worker)()
        self.ready(1)
        process = self.run(task, "--json")
        assert gate.reached.wait(60), first.said
        return first, process

    def replace(
        self, first: WorkerProcess, gate: Gate, start: Callable[[], WorkerProcess] | None = None
    ) -> WorkerProcess:
        """Start another worker, kill the first one, and open the gate. Return the new one."""
        second = (start or self.worker)()
        self.ready(2)
        first.kill()
        gate.open.set()
        return second

    def events(self, run_id: str) -> list[dict[str, Any]]:
        return list(self.json("runs", "show", run_id, "--json")["events"])

    def warnings(self, run_id: str) -> list[str]:
        return [event["text"] for event in self.events(run_id) if event["type"] == "run.warned"]

    def only_run(self) -> dict[str, Any]:
        (row,) = self.json("runs", "list", "--json")["runs"]
        return dict(row)

    def until(self, true: Any, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, [line for each in self.workers for line in each.said]
            time.sleep(0.1)

    def execute(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Run a statement as someone who may write to the database."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def send_and_hold(self) -> tuple[subprocess.Popen[str], str]:
        """Send a run that no worker takes, and return its process and its id."""
        process = self.run("Do all steps", "--labels", "later", "--json")
        self.until(lambda: self.execute("SELECT count(*) FROM pg_namespace WHERE nspname='retinue'") == [(1,)])
        self.until(lambda: self.execute("SELECT count(*) FROM retinue.placements") == [(1,)])
        return process, self.execute("SELECT run_id FROM retinue.placements")[0][0]

    def file(self, branch: str, path: str) -> str:
        return self.git("show", f"{branch}:{path}")

    def close(self) -> None:
        for each in self.workers:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGCONT)
                each.process.terminate()
        for each in self.workers:
            try:
                each.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                each.kill()


def steps(request: Request) -> Reply:
    if request.turn < TURNS:
        return Reply(f"Step {request.turn}. ", [("bash", {"command": f"echo {request.turn} >> done.txt"})])
    return Reply("all steps done")


class Gate:
    """Answers like `steps`, and holds the answer to turn `turn` until it is opened: once."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.reached, self.open = threading.Event(), threading.Event()

    def answer(self, request: Request) -> Reply:
        if request.turn == self.turn and not self.reached.is_set():
            self.reached.set()
            self.open.wait(60)
        return steps(request)


def result(process: subprocess.Popen[str]) -> Any:
    """Return what the run that was started said, when it has ended well."""
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return json.loads(out)["details"]["results"][0]
