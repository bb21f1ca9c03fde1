"""A project with one small agent and a hundred small files, and a home that nobody has used."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

WORKER = """---
name: bench-worker
description: Bench worker. Reads files as told and reports.
tools: Read
---
You are a bench worker. Do exactly what the task says, then report in one line.
"""


class Project:
    """Use in a `with` block; everything is removed at its end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="retinue-bench-")

    def __enter__(self) -> Project:
        base = Path(self._folder.name).resolve()
        self.home, self.cwd = base / "home", base / "project"
        self.files = self.cwd / "files"
        agents = self.cwd / ".claude" / "agents"
        for folder in (self.home, self.files, agents):
            folder.mkdir(parents=True)
        (agents / "bench-worker.md").write_text(WORKER)
        for number in range(100):
            (self.files / f"f{number:02}.txt").write_text(f"alpha {number:02}\nbeta\ngamma\ndelta\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def environment(self, url: str, **more: str) -> dict[str, str]:
        """Nothing of the user's own, and the scripted server for a model."""
        return {
            "HOME": str(self.home),
            "RETINUE_HOME": str(self.home / ".retinue"),
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "BENCH_URL": url,
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "RETINUE_MODEL": "anthropic/claude-sonnet-4-5",
            "RETINUE_MAX_CONCURRENT": "1024",
            **more,
        }


def retinue(prompt: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "retinue", "-p", prompt, *options]
