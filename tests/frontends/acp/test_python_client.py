"""The client of PyPI `agent-client-protocol` drives a whole conversation: two children, an approval, a steer, a cancel
and a load."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

acp = pytest.importorskip("acp")

CHANGE = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})


class Client:
    """What an editor does, in a few lines."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    def on_connect(self, connection: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
        from acp.schema import AllowedOutcome, RequestPermissionResponse

        self.asked.append(tool_call)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id="allow"))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def text(self) -> str:
        chunks = [each for each in self.updates if each.session_update == "agent_message_chunk"]
        return "".join(each.content.text for each in chunks)

    async def until(self, word: str) -> None:
        async with asyncio.timeout(60):
            while not any(word in str(each) for each in self.updates):
                await asyncio.sleep(0.02)


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def started(project: Project, client: Client) -> AbstractAsyncContextManager[Any]:
    program, *arguments = [*project.program, "acp"]
    found: AbstractAsyncContextManager[Any] = acp.spawn_agent_process(
        client, program, *arguments, env=project.environment, cwd=project.home
    )
    return found


async def test_a_whole_conversation(project: Project, serve: Any) -> None:
    project.mode = "default"
    heard = threading.Event()

    def answer(request: Request) -> Reply:
        text = said(request)
        if "look for" in text[:120]:
            return Reply("It is in f0.txt.") if request.turn else Reply(calls=[("grep", {"pattern": "beta"})])
        if "wait for me" in text:
            return Reply("…", hang=True)
        if request.turn == 0:
            one = {"prompt": "look for alpha", "subagent_type": "Explore", "description": "find alpha"}
            two = {"prompt": "look for beta", "subagent_type": "Explore", "description": "find beta"}
            return Reply("Two look.", calls=[("Agent", one), ("Agent", two)])
        if request.turn == 2:
            heard.wait(30)
            return Reply("I change it.", calls=[CHANGE])
        return Reply(f"Blue: {'use blue' in text}.")

    serve(answer)
    client = Client()
    async with started(project, client) as (agent, _):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd=str(project.cwd), mcp_servers=[])
        first = asyncio.create_task(agent.prompt(session.session_id, [acp.text_block("Change beta")]))
        await client.until("find beta")
        second = asyncio.create_task(agent.prompt(session.session_id, [acp.text_block("use blue")]))
        await agent.list_sessions()
        heard.set()
        assert {(await each).stop_reason for each in (first, second)} == {"end_turn"}
        assert "gamma" in (project.cwd / "f0.txt").read_text()
        assert [each.title for each in client.asked] == ["edit f0.txt"]
        assert "Blue: True." in client.text()
        shown = str(client.updates)
        assert "Explore: find alpha" in shown and "It is in f0.txt." in shown
        waiting = asyncio.create_task(agent.prompt(session.session_id, [acp.text_block("wait for me")]))
        await asyncio.sleep(0)
        await agent.cancel(session.session_id)
        assert (await waiting).stop_reason == "cancelled"
    again = Client()
    async with started(project, again) as (agent, _):
        await agent.initialize(protocol_version=1)
        await agent.load_session(cwd=str(project.cwd), session_id=session.session_id, mcp_servers=[])
        kinds = {each.session_update for each in again.updates}
        assert {"user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update"} <= kinds
        assert "Blue: True." in again.text()
        assert (await agent.prompt(session.session_id, [acp.text_block("/cost")])).stop_reason == "end_turn"
        assert "Explore" in again.text()
