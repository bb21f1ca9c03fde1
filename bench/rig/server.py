"""The scripted model server of the shared rig, in a process of its own, on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "bench"
"""The rig lies beside the repository; without it there is nothing to measure against."""


def require_rig() -> None:
    """Ends the program, as a success, where the shared rig is not there."""
    if not (SHARED / "fake_llm.py").is_file():
        print("The shared benchmark rig (../shared/bench) is not here: nothing was measured.")
        sys.exit(0)


class Server:
    """`fake_llm.py`; its docstring has the markers it understands. Use in a `with` block."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.url = ""

    def __enter__(self) -> Server:
        ready = Path(self._folder.name) / "ready"
        command = [sys.executable, str(SHARED / "fake_llm.py"), "--ready-file", str(ready)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(400):
            text = ready.read_text() if ready.is_file() else ""
            if text.startswith("LISTENING"):
                self.url = f"http://127.0.0.1:{int(text.split()[1])}"
                return self
            time.sleep(0.025)
        self._process.kill()
        raise SystemExit("The scripted server did not start.")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def reset(self) -> None:
        self._call("reset", b"")

    def records(self) -> list[dict[str, Any]]:
        """What was asked since the last reset, in order; times are Unix times."""
        found: list[dict[str, Any]] = self._call("log", None)
        return found

    def dump(self, folder: Path) -> None:
        """From now on the first request of every kind is written to `folder`, whole."""
        self._call(f"dump?dir={folder}", b"")

    def _call(self, what: str, data: bytes | None) -> Any:
        with urllib.request.urlopen(f"{self.url}/__bench/{what}", data=data, timeout=60) as answer:
            return json.loads(answer.read() or b"{}")
