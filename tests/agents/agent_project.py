"""A project and a home of its own for each test, with agents in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.git_folder import make_git_folder
from tests.program_main import run_main

from retinue import Retinue


class Project:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "project"
        self.home = folder / "home"
        make_git_folder(self.root)
        self.home.mkdir()
        monkeypatch.setenv("HOME", str(self.home))
        for name in ("RETINUE_HOME", "PI_CODING_AGENT_DIR", "RETINUE_DISABLE_BUILTIN_AGENTS", "GITHUB_WORKSPACE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(self.root)

    def write(self, path: str, text: str | bytes) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        return target

    def catalog(self) -> Any:
        return Retinue(self.root).agents

    def agent(self, name: str) -> Any:
        return self.catalog().find(name)

    def agents(self, *arguments: str) -> dict[str, Any]:
        """Return the document of `retinue agents …`."""
        done = run_main("agents", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *arguments: str) -> str:
        """Return what `retinue agents …` says when it does nothing."""
        done = run_main("agents", *arguments)
        assert done.returncode == 2, done.stdout
        return done.stderr
