"""The conformance suite of the protocol's makers judges `/mcp` in both of its ways: with sessions, and without."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.mcp.bearer_proxy import bearer_proxy
from tests.frontends.server.conftest import serving
from tests.npm_packages import npm_modules
from tests.program.conftest import Project
from tests.program.model_server import Reply

__all__ = ["serving"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite_finds_nothing_new(project: Project, serve: Any, serving: Any, version: str) -> None:
    serve(lambda request: Reply(text="Done."))
    programs = npm_modules() / ".bin"
    missing = Path(__file__).with_name(f"conformance-{version}.yml")
    with bearer_proxy(serving()) as url:
        command = [str(programs / "conformance"), "server", "--url", url, "--suite", "all", "--spec-version", version]
        done = subprocess.run(
            [*command, "--expected-failures", str(missing)],
            cwd=project.home,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "✓ tools-list" in done.stdout
