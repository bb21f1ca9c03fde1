"""Every frame of whole conversations, as it goes over the wire, compared with recorded ones.

Regenerate with RETINUE_SNAPSHOTS=write after a change that is meant.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from tests.frontends.mcp.test_mcp_hosts import edits_a_file, look_first
from tests.program.conftest import Project

from retinue.app.feed import Feed
from retinue.frontends.mcp.offer import Offer
from retinue.frontends.mcp.server import McpServer

WRITE_FRAMES = os.environ.get("RETINUE_SNAPSHOTS") == "write"
GOLDEN = Path(__file__).parent / "golden"
VERSION = "io.modelcontextprotocol/protocolVersion"
NEWER = {
    VERSION: "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "golden", "version": "1"},
}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_PATTERNS = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{2}\b", "RUN"),
    (r"\brun [0-9a-f]{8}\b", "run RUN"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
    (r"/[^\s\"]*/project\b", "PROJECT"),
    (r"/[^\s\"]*/home/", "HOME/"),
    (r"/projects/[^/\"]+/", "/projects/STATE/"),
    (r"(?<= · )\d[\d.]*(?:ms|s)\b", "DURATION"),
)


class Wire:
    """A host in raw frames. `frames` is the conversation so far, with what differs each time replaced."""

    def __init__(self, to_server: Any, from_server: Any, meta: dict[str, Any] | None) -> None:
        self._to, self._from, self._meta = to_server, from_server, meta
        self._ids: dict[str, str] = {}
        self.frames: list[dict[str, Any]] = []
        self.number = 0

    async def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        if self._meta is not None:
            params["_meta"] = self._meta
        await self._send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while True:
            found = await self.hear()
            if found.get("id") == self.number and "method" not in found:
                return found.get("result", found.get("error"))

    async def tell(self, method: str) -> None:
        await self._send({"jsonrpc": "2.0", "method": method})

    async def answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def hear(self) -> dict[str, Any]:
        with anyio.fail_after(60):
            message = await self._from.receive()
        found = json.loads(message.message.model_dump_json(by_alias=True, exclude_unset=True))
        self.frames.append({"server": self._plain(found)})
        return found

    async def _send(self, frame: dict[str, Any]) -> None:
        self.frames.append({"host": self._plain(frame)})
        await self._to.send(SessionMessage(jsonrpc_message_adapter.validate_python(frame, by_name=False)))

    def _plain(self, frame: dict[str, Any]) -> Any:
        text = json.dumps(frame, ensure_ascii=False)
        for pattern, mark in _PATTERNS:
            text = re.sub(pattern, mark, text)
        for item in re.findall(r'"(?:item|id)": "([0-9a-f]{6,12})"|"inputRe\w+": {"([0-9a-f]{6,12})"', text):
            self._ids.setdefault("".join(item), f"ITEM{len(self._ids) + 1}")
        for item, mark in self._ids.items():
            text = text.replace(item, mark)
        return json.loads(text)


@pytest.fixture
def wire(project: Project, monkeypatch: pytest.MonkeyPatch) -> Any:
    @asynccontextmanager
    async def connect(meta: dict[str, Any] | None = None) -> AsyncIterator[Wire]:
        for name, value in project.environment.items():
            monkeypatch.setenv(name, value)
        # A run says so when it finds a variable that is none of its own.
        monkeypatch.delenv("RETINUE_SNAPSHOTS", raising=False)
        feed = Feed(project.cwd.resolve())
        server = McpServer(feed, Offer(("Explore", "general-purpose")))
        to_server, reads = create_context_streams[SessionMessage | Exception](100)
        writes, from_server = create_context_streams[SessionMessage](100)
        async with anyio.create_task_group() as group:
            group.start_soon(server.run, reads, writes, server.create_initialization_options())
            try:
                yield Wire(to_server, from_server, meta)
            finally:
                group.cancel_scope.cancel()
        await feed.close()

    return connect


def check(name: str, frames: list[dict[str, Any]]) -> None:
    made = json.dumps(frames, indent=1, ensure_ascii=False) + "\n"
    path = GOLDEN / f"{name}.json"
    if WRITE_FRAMES:
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(made)
    assert json.loads(made) == json.loads(path.read_text())


RUN = {"name": "run_agent", "arguments": {"agent": "Explore", "task": "Look"}}
WRITE = {"name": "run_agent", "arguments": {"agent": "general-purpose", "task": "Write a file"}}


async def test_the_frames_of_a_host_that_lists_and_runs(serve: Any, wire: Any) -> None:
    serve(look_first)
    async with wire(NEWER | {CAPABILITIES: {}}) as host:
        await host.ask("server/discover")
        await host.ask("tools/list")
        await host.ask("resources/templates/list")
        await host.ask("tools/call", **RUN)
        await host.ask("tools/call", name="run_agent", arguments={"agent": "nobody", "task": "Look"})
        await host.ask("tasks/get", taskId="00000000-0000-400")
    check("newer", host.frames)


async def test_the_frames_of_a_host_that_follows_tasks(project: Project, serve: Any, wire: Any) -> None:
    project.mode = "default"
    serve(edits_a_file)
    extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with wire(NEWER | {CAPABILITIES: extensions}) as host:
        task = await host.ask("tools/call", **WRITE)
        found, seen = {"status": "working"}, 0
        # The item is there a moment before the run counts as waiting.
        while found["status"] == "working" or "waiting" not in found["statusMessage"]:
            # How often a host has to look is left to chance.
            del host.frames[len(host.frames) - seen :]
            found = await host.ask("tasks/get", taskId=task["taskId"])
            seen = 2
            await anyio.sleep(0.05)
            host.number = 1
        (key,) = found["inputRequests"]
        allowed = {key: {"action": "accept", "content": {"choice": "allow"}}}
        await host.ask("tasks/update", taskId=task["taskId"], inputResponses=allowed)
        found, seen = {"status": "working"}, 0
        while found["status"] in ("working", "input_required"):
            del host.frames[len(host.frames) - seen :]
            host.number = 10
            found = await host.ask("tasks/get", taskId=task["taskId"])
            seen = 2
            await anyio.sleep(0.05)
        await host.ask("tasks/get", taskId="00000000-0000-400")
    check("tasks", host.frames)


async def test_the_frames_of_an_older_host_with_forms(project: Project, serve: Any, wire: Any) -> None:
    project.mode = "default"
    serve(edits_a_file)
    async with wire() as host:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
        await host.ask("initialize", **opening, clientInfo={"name": "older", "version": "1"})
        await host.tell("notifications/initialized")
        host.number += 1
        await host._send({"jsonrpc": "2.0", "id": host.number, "method": "tools/call", "params": WRITE})
        form = await host.hear()
        assert form["method"] == "elicitation/create"
        await host.answer(form, {"action": "decline"})
        await host.hear()
    check("older", host.frames)


async def test_the_frames_of_a_newer_host_with_forms(project: Project, serve: Any, wire: Any) -> None:
    project.mode = "default"
    serve(edits_a_file)
    async with wire(NEWER | {CAPABILITIES: {"elicitation": {"form": {}}}}) as host:
        asked = await host.ask("tools/call", **WRITE)
        (key,) = asked["inputRequests"]
        allowed = {key: {"action": "accept", "content": {"choice": "allow-run"}}}
        await host.ask("tools/call", **WRITE, inputResponses=allowed, requestState=asked["requestState"])
    check("forms", host.frames)
