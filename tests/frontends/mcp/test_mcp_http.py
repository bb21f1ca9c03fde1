"""`/mcp` of `retinue serve`: the same tools over HTTP, behind the same guard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, ElicitResult
from tests.frontends.mcp.conftest import TaskHost, ask_task
from tests.frontends.mcp.test_mcp_hosts import MODES, WRITE, edits_a_file, look_first
from tests.frontends.server.conftest import Served, serving
from tests.program.conftest import Project
from tests.program.model_server import Reply

__all__ = ["serving"]


@asynccontextmanager
async def connected(server: Served, **options: Any) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=server.headers, timeout=60) as http:
        transport = streamable_http_client(f"{server.base}/mcp", http_client=http)
        async with Client(transport, **options) as client:
            yield client


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_over_http_runs_an_agent(serve: Any, serving: Any, mode: str) -> None:
    serve(look_first)
    async with connected(serving(), mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
    assert names[0] == "run_agent"
    assert result.structured_content["results"][0]["output"] == "It says alpha."


async def test_a_host_over_http_follows_a_task(serve: Any, serving: Any) -> None:
    serve(look_first)
    tasks = TaskHost()
    async with connected(serving(), extensions=[tasks]) as client:
        result = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
    assert tasks.created == [result.structured_content["runId"]]


@pytest.mark.parametrize("mode", MODES)
async def test_an_approval_reaches_the_user_over_http(project: Project, serve: Any, serving: Any, mode: str) -> None:
    project.mode = "default"
    serve(edits_a_file)

    async def allow(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"choice": "allow"})

    async with connected(serving(), mode=mode, elicitation_callback=allow) as client:
        result = await client.call_tool("run_agent", WRITE)
    assert result.structured_content["record"]["filesWritten"] == ["new.txt"]


def test_nobody_gets_in_without_the_token_or_from_another_site(serving: Any) -> None:
    server = serving()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    for headers, status in (
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ):
        found, _, document = server.request("POST", "/mcp", json.dumps(body).encode(), {**accept, **headers})
        assert found == status, document


async def test_a_server_that_ends_does_not_wait_for_a_call(serve: Any, serving: Any) -> None:
    serve(lambda request: Reply(hang=True))
    server = serving()
    async with httpx2.AsyncClient(headers=server.headers, timeout=60) as http:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        accept = {"Accept": "application/json, text/event-stream"}

        async def post(number: int, method: str, **params: Any) -> httpx2.Response:
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            return await http.post(f"{server.base}/mcp", json=body, headers=accept)

        session = (await post(1, "initialize", **opening)).headers["mcp-session-id"]
        accept["mcp-session-id"] = session
        arguments = {"agent": "Explore", "task": "Look", "wait_seconds": 600}
        call = asyncio.create_task(post(2, "tools/call", name="run_agent", arguments=arguments))
        await asyncio.to_thread(
            server.until, "/v1/runs", lambda found: [run for run in found["runs"] if run["state"] == "running"]
        )
        code, error = await asyncio.to_thread(server.end)
        await asyncio.gather(call, return_exceptions=True)
    assert code == 0, error
    assert "1 run of this server stopped" in error


async def test_a_task_that_the_header_does_not_name_is_refused(serve: Any, serving: Any) -> None:
    """Gateways route by the header: what it says and what the request says must be the same."""
    serve(look_first)
    server, tasks = serving(), TaskHost(follow=False)

    async def name_another(request: httpx2.Request) -> None:
        if b"tasks/get" in request.content:
            request.headers["Mcp-Name"] = "another"

    hooks = {"request": [name_another]}
    async with httpx2.AsyncClient(headers=server.headers, timeout=60, event_hooks=hooks) as http:
        transport = streamable_http_client(f"{server.base}/mcp", http_client=http)
        async with Client(transport, extensions=[tasks]) as client:
            made = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
            with pytest.raises(MCPError) as caught:
                await ask_task(client.session, "tasks/get", taskId=made.structured_content["taskId"])
    assert caught.value.error.code == HEADER_MISMATCH


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_an_old_host_gets_no_links_which_it_could_not_read(serve: Any, serving: Any, version: str) -> None:
    serve(look_first)
    server = serving()
    headers = {"Accept": "application/json, text/event-stream"}

    def ask(method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        status, sent, answer = server.request("POST", "/mcp", body, headers)
        assert status == 200, answer
        if "mcp-session-id" in sent:
            headers["Mcp-Session-Id"] = sent["mcp-session-id"]
        lines = [line for line in answer.decode().splitlines() if line.startswith("data: {")]
        return json.loads(lines[-1].removeprefix("data: "))["result"]

    info = {"name": "old", "version": "1"}
    assert ask("initialize", protocolVersion=version, capabilities={}, clientInfo=info)["protocolVersion"] == version
    result = ask("tools/call", name="run_agent", arguments={"agent": "Explore", "task": "Look"})
    assert [block["type"] for block in result["content"]] == ["text"]
