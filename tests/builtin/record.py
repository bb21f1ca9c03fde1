"""Records the cassettes of the shipped agents' tests again, with a model server that says what stands below.

    python -m tests.builtin.record

No model is asked: the tests are about what the agents may do, not about what a model makes of their prompts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.program.model_server import ModelServer, Reply, Request

HERE = Path(__file__).parent
OPEN = "    handle = open(path)\n    return handle.read()\n"
CLOSED = "    with open(path) as handle:\n        return handle.read()\n"

TURNS: dict[str, tuple[Reply, ...]] = {
    "Explore": (
        Reply("I look for calls of open.", [("grep", {"pattern": r"open\("})]),
        Reply("", [("read", {"path": "src/io.py"})]),
        Reply("`src/io.py:6`: the file is opened and never closed."),
    ),
    "verification": (
        Reply("", [("read", {"path": "src/io.py"})]),
        Reply("I try to correct it.", [("bash", {"command": "echo '# closed' >> src/io.py"})]),
        Reply("**Verdict** - does not hold: src/io.py:6 opens a file that nobody closes."),
    ),
    "general-purpose": (
        Reply("", [("read", {"path": "src/io.py"})]),
        Reply("", [("edit", {"path": "src/io.py", "edits": [{"oldText": OPEN, "newText": CLOSED}]})]),
        Reply("", [("bash", {"command": "git push origin main"})]),
        Reply("src/io.py closes its file now. The push was refused."),
    ),
    "main": (
        Reply("", [("Agent", {"subagent_type": "Explore", "description": "find opens", "prompt": "Where is open?"})]),
        Reply("Explore looks for it."),
    ),
}


def answer(request: Request) -> Reply:
    found = re.search(r'active_agent name="([^"]+)"', str(request.body.get("system", "")))
    turns = TURNS[found[1] if found else "main"]
    return turns[min(request.turn, len(turns) - 1)]


def main() -> int:
    with ModelServer(answer) as server, tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "recorded",
        }
        model = ("--live", "anthropic/claude-sonnet-4-5", "--max-usd", "1", "--record")
        command = (sys.executable, "-m", "retinue", "test", str(HERE), *model)
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
