"""A server that speaks the newest revision of the protocol only."""

from __future__ import annotations

import json
import sys

import pytest

from tests.program.conftest import Project

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    common = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if asked["method"] == "initialize":
        answer["error"] = {"code": CODE, "message": "No", "data": {"supported": ["2026-07-28"], "requested": "x"}}
    elif asked["method"] == "server/discover":
        info = {"name": "newer", "version": "1"}
        answer["result"] = {**common, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        answer["result"]["serverInfo"] = info
    else:
        answer["result"] = {**common, "tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}
    print(json.dumps(answer), flush=True)
"""


@pytest.mark.parametrize("code", [-32601, -32022, -32020])
def test_a_server_that_refuses_the_old_handshake_is_asked_in_the_new_way(project: Project, code: int) -> None:
    """The SDK wraps the refusal, and nobody looked inside."""
    script = project.home / "newer.py"
    script.write_text(SERVER.replace("CODE", str(code)))
    (project.home / ".retinue").mkdir(exist_ok=True)
    servers = {"newer": {"command": sys.executable, "args": [str(script)]}}
    (project.home / ".retinue" / "settings.json").write_text(json.dumps({"mcpServers": servers}))
    checked = project.retinue("servers", "check")
    assert checked.returncode == 0 and "mcp__newer__greet" in checked.stdout, checked.stdout + checked.stderr
