"""Servers that refuse the handshake: of the newest revision only, or behind a sign-in."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.program.conftest import Project

COMMON = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
INFO = {"name": "newer", "version": "1"}
TOOLS = [{"name": "greet", "inputSchema": {"type": "object"}}]
DISCOVERED = {**COMMON, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": INFO}
ANSWERS = {"server/discover": DISCOVERED, "tools/list": {**COMMON, "tools": TOOLS}}
UNKNOWN = {"result": {"protocolVersion": "2026-07-28", "capabilities": {"tools": {}}, "serverInfo": INFO}}
"""The old handshake answered with a revision that it cannot have."""

SERVER = """
import json, sys
first, answers = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        body = first if request["method"] == "initialize" else {"result": answers[request["method"]]}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)
"""


def refusal(code: int) -> dict[str, Any]:
    """Return what a newer server says to the old handshake."""
    return {"error": {"code": code, "message": "No", "data": {"supported": ["2026-07-28"], "requested": "x"}}}


FIRST = [refusal(-32601), refusal(-32022), refusal(-32020), UNKNOWN]
NAMES = ["no method", "revision", "header", "unknown revision"]


@contextmanager
def http_server(first: dict[str, Any], status: int) -> Iterator[str]:
    """Serve over HTTP, and yield the address. `first` is said to the old handshake, with `status`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            old = request["method"] == "initialize"
            body = first if old else {"result": ANSWERS.get(request["method"], {})}
            data = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **body}).encode()
            self.send_response(status if old else 200 if "id" in request else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


def check(project: Project, server: dict[str, Any]) -> CompletedProcess[str]:
    (project.home / ".retinue").mkdir(exist_ok=True)
    (project.home / ".retinue" / "settings.json").write_text(json.dumps({"mcpServers": {"newer": server}}))
    return project.retinue("servers", "check")


def assert_used(checked: CompletedProcess[str]) -> None:
    assert checked.returncode == 0 and "mcp__newer__greet" in checked.stdout, checked.stdout + checked.stderr


@pytest.mark.parametrize("first", FIRST, ids=NAMES)
def test_a_program_that_refuses_the_old_handshake_is_asked_in_the_new_way(
    project: Project, first: dict[str, Any]
) -> None:
    """The SDK wraps the refusal, and nobody looked inside."""
    script = project.home / "newer.py"
    script.write_text(SERVER)
    arguments = [str(script), json.dumps(first), json.dumps(ANSWERS)]
    assert_used(check(project, {"command": sys.executable, "args": arguments}))


@pytest.mark.parametrize("first", FIRST, ids=NAMES)
def test_an_address_that_refuses_the_old_handshake_is_asked_in_the_new_way(
    project: Project, first: dict[str, Any]
) -> None:
    with http_server(first, 400 if "error" in first else 200) as url:
        assert_used(check(project, {"type": "http", "url": url}))


def test_a_server_behind_a_sign_in_is_told_with_the_way_to_use_it(project: Project) -> None:
    with http_server({}, 401) as url:
        checked = check(project, {"type": "http", "url": url})
    assert checked.returncode == 1 and "401 Unauthorized. Retinue does not sign in to MCP servers" in checked.stdout
    assert "put a token into its `headers`" in checked.stdout
