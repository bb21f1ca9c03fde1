"""A repository, a state folder, and worktrees made from one in the other."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from retinue.capabilities.worktree.record import WorktreeRecord
from retinue.capabilities.worktree.save import SavedWork, finish
from retinue.capabilities.worktree.worktree import WorktreeRequest, make
from retinue.testing.fixtures import Repository, temporary_repository


@dataclass
class Scene:
    repository: Repository
    state: Path
    environment: dict[str, str]
    made: int = 0
    notes: list[str] = field(default_factory=list)
    """Of the last worktree that was made."""

    @property
    def path(self) -> Path:
        return self.repository.path

    def git(self, *arguments: str) -> str:
        return self.repository.git(*arguments)

    def make(self, run: str | None = None, **options: Any) -> WorktreeRecord:
        self.made += 1
        options.setdefault("cwd", self.path)
        run = run or f"{self.made:08d}-0000-4aa"
        self.notes = []
        return make(WorktreeRequest(run=run, state=self.state, environment=self.environment, **options), self.notes)

    def finish(self, worktree: WorktreeRecord, **options: Any) -> SavedWork:
        saved = finish(self.state, worktree.run, self.environment, **options)
        assert saved is not None
        return saved

    def shell(self, worktree: WorktreeRecord, script: str, *, good: bool = True) -> str:
        """What the agent's shell would do, without a sandbox."""
        done = subprocess.run(
            ["bash", "-c", script], cwd=worktree.work, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0 or not good, done.stderr
        return done.stdout

    def show(self, what: str) -> str:
        return self.git("show", what)

    def left(self) -> list[str]:
        """What is in the folder of worktrees."""
        folder = self.state / "worktrees"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def snapshot(self) -> dict[str, Any]:
        """Everything of the main checkout that an agent must not change."""
        files = {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(self.path).parts
        }
        git = self.path / ".git"
        return {
            "files": files,
            "head": (git / "HEAD").read_text(),
            "index": (git / "index").read_bytes(),
            "config": (git / "config").read_bytes(),
            "refs": [line for line in self.git("for-each-ref").splitlines() if "retinue" not in line],
            "hooks": sorted(path.name for path in (git / "hooks").iterdir()) if (git / "hooks").is_dir() else [],
        }


@pytest.fixture
def scene(tmp_path: Path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    files = {"a.txt": "a\n", "sub/b.txt": "b\n", ".gitignore": "*.log\n.env\nbuild/\n"}
    with temporary_repository(files, path=tmp_path / "repo") as repository:
        yield Scene(repository, tmp_path / "state", environment)
