"""A project of its own for every test, and the real program run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import run_program
from tests.program.cluster_scene import ClusterScene
from tests.program.model_server import ModelServer


@dataclass
class Project:
    """`retinue(...)` runs the program as a user would, with nothing of the test's environment."""

    cwd: Path
    home: Path
    server: ModelServer | None = None
    mode: str = "bypassPermissions"
    """The permission mode, unless a test says otherwise: most are about other things."""

    @property
    def environment(self) -> dict[str, str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "RETINUE_HOME": str(self.home / ".retinue")}
        if self.mode:
            env["RETINUE_PERMISSIONS_DEFAULT_MODE"] = self.mode
        for name in ("COVERAGE_PROCESS_START", "PYTHONPATH"):  # which program is tested, and whether it is measured
            if name in os.environ:
                env[name] = os.environ[name]
        if self.server is not None:
            env |= {
                "ANTHROPIC_BASE_URL": self.server.url,
                "ANTHROPIC_API_KEY": "test-key",
                "RETINUE_MODEL": "anthropic/claude-sonnet-4-5",
            }
        return env

    @property
    def program(self) -> list[str]:
        return [sys.executable, "-m", "retinue"]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.program, *arguments],
            cwd=self.cwd,
            env=self.environment | options.pop("env", {}),
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def retinue(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the program to its end, in a process that is forked from one that has imported it."""
        environment = self.environment | options.pop("env", {})
        return run_program(arguments, self.cwd, environment, **options)

    def json(self, *arguments: str) -> Any:
        done = self.retinue(*arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    cwd, home = tmp_path / "project", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    for number in range(5):
        (cwd / f"f{number}.txt").write_text(f"alpha {number}\nbeta\n")
    return Project(cwd, home)


@pytest.fixture
def serve(project: Project):
    """`serve(answer)` starts a model server whose answers are `answer(request)`."""
    servers: list[ModelServer] = []

    def start(answer: Any) -> ModelServer:
        server = ModelServer(answer)
        server.__enter__()
        servers.append(server)
        project.server = server
        return server

    yield start
    for server in servers:
        server.__exit__()


@pytest.fixture
def scene(project: Project, postgres: str, tmp_path: Path) -> Iterator[ClusterScene]:
    """A project, and a database of its own, for a cluster without workers yet."""
    import psycopg

    name = f"scene_{abs(hash(str(tmp_path))) % 10**12}"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    made = ClusterScene(project, postgres.replace("/postgres?", f"/{name}?"), tmp_path / "workers")
    yield made
    made.close()
