"""npm `acpx`, where it is installed: a conversation with two children and an approval, a cancel, and a load after the
agent's process has ended. Every frame of the agent is valid.

    npm install -g acpx@0.19.1        (needs Node 22.13 or newer)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from typing import Any

import pytest
from tests.frontends.acp.conftest import check
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

pytestmark = pytest.mark.skipif(shutil.which("acpx") is None, reason="npm acpx is not installed")
CHANGE = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def answer(request: Request) -> Reply:
    text = said(request)
    if "look for" in text[:120]:
        return Reply("It is in f0.txt.") if request.turn else Reply(calls=[("grep", {"pattern": "beta"})])
    if "wait for me" in text and "once more" not in text:
        return Reply("…", hang=True)
    if request.turn == 0:
        one = {"prompt": "look for alpha", "subagent_type": "Explore", "description": "find alpha"}
        two = {"prompt": "look for beta", "subagent_type": "Explore", "description": "find beta"}
        return Reply("Two look.", calls=[("Agent", one), ("Agent", two)])
    return Reply("I change it.", calls=[CHANGE]) if request.turn == 2 else Reply("All done.")


class Acpx:
    """Runs `acpx` and keeps the frames of both sides. `ours` are those of the agent, each of them valid."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.env = {**project.environment, "PATH": os.environ["PATH"]}
        self._options = [
            "--format",
            "json",
            "--approve-all",
            "--ttl",
            "1",
            "--agent",
            f"{' '.join(project.program)} acp",
        ]

    def _run(self, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["acpx", *self._options, *words],
            cwd=self._project.cwd,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def __call__(self, *words: str) -> list[dict[str, Any]]:
        done = self._run(words)
        for _ in range(20):
            # The process that acpx keeps is just ending: acpx itself calls this retryable.
            if "QUEUE_OWNER_CLOSED" not in done.stdout:
                break
            time.sleep(1)
            done = self._run(words)
        assert done.returncode == 0, done.stderr + done.stdout
        frames = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"jsonrpc"')]
        methods: dict[Any, str] = {}
        for frame in frames:
            is_answer = "method" not in frame and "outcome" not in (frame.get("result") or {})
            if is_answer or frame.get("method") in ("session/update", "session/request_permission"):
                check(frame, methods, unstable=False)
            elif "method" in frame and "id" in frame:
                methods[frame["id"]] = frame["method"]
        return frames


def test_acpx_drives_a_conversation(project: Project, serve: Any) -> None:
    project.mode = "default"
    serve(answer)
    acpx = Acpx(project)
    acpx("sessions", "new")
    told = json.dumps(acpx("prompt", "Change beta"), ensure_ascii=False)
    assert "Explore: find alpha" in told and "Explore: find beta" in told and "session/request_permission" in told
    assert '"stopReason": "end_turn"' in told
    assert "gamma" in (project.cwd / "f0.txt").read_text()
    waiting = threading.Thread(target=acpx, args=("prompt", "wait for me"))
    waiting.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(
        run["state"] == "running" for run in project.json("runs", "list", "--json")["runs"]
    ):
        time.sleep(0.1)
    acpx("cancel")
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    # The process that acpx keeps for its session ends after a second; the next prompt starts another one.
    time.sleep(3)
    loaded = acpx("prompt", "/cost")
    assert {frame.get("method") for frame in loaded} & {"session/load", "session/resume"}
    assert "Explore" in json.dumps(loaded)
    acpx("set-mode", "acceptEdits")
    acpx("sessions", "close")
    assert {run["state"] for run in project.json("runs", "list", "--json")["runs"]} == {"ended"}
