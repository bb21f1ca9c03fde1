"""Schemathesis, a judge of other people, sends what the OpenAPI document allows and what it does not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.server.conftest import Served
from tests.program.conftest import Project
from tests.program.model_server import Reply

pytestmark = pytest.mark.slow
CHECKS = Path(__file__).with_name("schemathesis.toml")
SLOW = "(events|changes|story|/ag-ui/.*|/v1/doctor|/v1/models)$"
"""Streams have no end, and two routes look at the whole machine."""


def test_schemathesis_finds_nothing(project: Project, serve: Any, serving: Callable[..., Served]) -> None:
    serve(lambda request: Reply(text="Done."))
    server = serving()
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CHECKS)]
    command += ["run", f"{server.base}/openapi.json", "--exclude-path-regex", SLOW, "--no-color"]
    command += ["--header", f"Authorization: Bearer {server.token}"]
    done = subprocess.run(command, cwd=project.home, capture_output=True, text=True, timeout=150)
    said = "\n".join(line[:300] for line in done.stdout.splitlines()) + done.stderr
    assert done.returncode == 0, said
    # A judge who was let in nowhere finds nothing either.
    cases = re.search(r"(\d+) generated", said)
    # Its time is bounded: on a busy machine it sends fewer.
    assert cases and int(cases[1]) > 50, said
