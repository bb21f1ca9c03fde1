"""A small MCP server without any library: it starts at once, and can misbehave as no library would.

    python raw_server.py [FLAG...]

Flags: `banner` talks before the handshake, `mute` never answers it, `late` adds a tool after the
first call, `huge` sends a line without end, `many=N` has N tools, `names=A,B` has tools of those
names, `deaf` ignores the end of its input, `nonsense` answers with what is no result, `odd` has
parameters that no model provider accepts, `lax` has tools besides that do not follow the protocol.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

FLAGS = dict(flag.partition("=")[::2] for flag in sys.argv[1:])
NAMES = FLAGS["names"].split(",") if "names" in FLAGS else ["echo"]
NAMES += [f"tool-{number}" for number in range(int(FLAGS.get("many", "0")))]


ODD = {
    "type": "object",
    "properties": {"$filter": {"type": "string"}, "content": {"type": "string"}},
    "anyOf": [{"required": ["$filter"]}, {"required": ["content"]}],
}


def tool(name: str) -> dict[str, Any]:
    schema = ODD if "odd" in FLAGS else {"type": "object", "properties": {}}
    return {"name": name, "description": f"The {name} tool.", "inputSchema": schema}


TOOLS = [tool(name) for name in NAMES]
if "lax" in FLAGS:
    TOOLS += [
        {"name": "untyped", "inputSchema": {"properties": {"a": {"type": "string"}}}, "outputSchema": {}},
        {"name": "bare"},
        {"name": "texty", "inputSchema": {"type": "string"}},
        {"name": "wordy", "inputSchema": "a: string"},
        {"inputSchema": {"type": "object"}},
        {"name": "slow", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
    ]


def send(message: dict[str, Any]) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def result(request: dict[str, Any], value: dict[str, Any]) -> None:
    send({"id": request["id"], "result": value})


def handle(request: dict[str, Any]) -> None:
    match request.get("method"):
        case "initialize" if "mute" in FLAGS:
            time.sleep(3600)
        case "initialize":
            version = request["params"]["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "raw", "version": "1"}
            result(request, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
        case "tools/list":
            result(request, {"tools": TOOLS})
        case "tools/call":
            call(request)
        case "ping":
            result(request, {})
        case _ if "id" in request and "method" in request:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


def call(request: dict[str, Any]) -> None:
    if "huge" in FLAGS:
        piece = b"x" * 1_000_000
        for _ in range(40):
            os.write(1, piece)
    if "nonsense" in FLAGS:
        result(request, {"content": 17})
        return
    said = json.dumps(request["params"].get("arguments"))
    result(request, {"content": [{"type": "text", "text": said}]})
    if "late" in FLAGS and len(TOOLS) == 1:
        TOOLS.append(tool("later"))
        send({"method": "notifications/tools/list_changed"})


def main() -> None:
    if "STARTS" in os.environ:
        with open(os.environ["STARTS"], "a") as starts:
            starts.write(f"{os.getpid()}\n")
    if "deaf" in FLAGS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "banner" in FLAGS:
        os.write(1, b"\xff\xfe Welcome!\n\n[1, 2]\n{}\nnull\n{not json\n" * 50)
        os.write(2, b"warming up " * 100_000)
    for line in sys.stdin.buffer:
        handle(json.loads(line))
    while "deaf" in FLAGS:
        time.sleep(60)


main()
