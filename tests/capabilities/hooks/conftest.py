"""A bus with real handlers: programs, a web server, functions."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from retinue.capabilities.hooks.bus import HandlerEnv, HookBus
from retinue.capabilities.hooks.sources import Handler, from_spec, group
from retinue.core.spec import HookSpec
from retinue.http.transport import Transport

WHO = {
    "session_id": "root",
    "run_id": "run",
    "agent_id": "run",
    "agent_type": "tester",
    "parent_id": "above",
    "transcript_path": "/t.jsonl",
    "permission_mode": "default",
}


class Bench:
    """Makes buses for one test. `reports` is what was said about broken handlers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[str] = []

    def bus(self, *handlers: Handler, **options: Any) -> HookBus:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TOKEN": "t0p", "OTHER": "hidden"}
        around = HandlerEnv(self.folder, self.folder, environment, Transport)
        return HookBus(
            group(handlers),
            around,
            {**WHO, "cwd": str(self.folder)},
            outputs=self.folder / "outputs",
            report=self.reports.append,
            **options,
        )

    def hook(
        self, event: str = "PreToolUse", timeout: float | None = None, dialect: Any = "claude", **raw: Any
    ) -> Handler:
        made, _ = from_spec(HookSpec(event, raw, raw.get("matcher"), timeout), source="", dialect=dialect)
        return made[0]

    def script(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class Web:
    """A server on loopback. `answer` gives (status, body) for each request it gets."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.answer: Callable[[dict[str, Any]], tuple[int, str]] = lambda payload: (200, "")
        self.over = threading.Event()
        web = self

        class Requests(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                payload = json.loads(self.rfile.read(int(self.headers["content-length"])))
                web.requests.append(({key.lower(): value for key, value in self.headers.items()}, payload))
                status, body = web.answer(payload)
                data = body.encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/hook"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()
