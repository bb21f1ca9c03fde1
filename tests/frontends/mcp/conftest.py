"""Hosts of all kinds for `retinue mcp`: the official client in memory, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict
from tests.program.conftest import Project

from retinue.app.feed import Feed
from retinue.frontends.mcp.offer import Offer
from retinue.frontends.mcp.server import McpServer

TASKS = "io.modelcontextprotocol/tasks"
INFO = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


class CreatedTask(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: int | None = None


class AnyParams(RequestParams):
    model_config = ConfigDict(extra="allow")


class TaskRequest(Request[AnyParams, str]):
    method: str
    params: AnyParams


class TaskDocument(Result):
    model_config = ConfigDict(extra="allow")


class TaskHost(ClientExtension):
    """A host that follows tasks. `answer` is asked for each entry of `inputRequests`; `seen` are all states."""

    identifier = TASKS

    def __init__(self, answer: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None, follow: bool = True):
        self.answer = answer
        self.follow = follow
        self.created: list[str] = []
        self.seen: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve)]

    async def _resolve(self, made: CreatedTask, context: ClaimContext) -> CallToolResult:
        self.created.append(made.task_id)
        if not self.follow:
            return CallToolResult(content=[], structured_content={"taskId": made.task_id})
        return await self.finish(context.session, made.task_id)

    async def finish(self, session: Any, task_id: str) -> CallToolResult:
        answered: set[str] = set()
        while True:
            task = await ask_task(session, "tasks/get", taskId=task_id)
            self.seen.append(task["status"])
            if task["status"] == "completed":
                return CallToolResult.model_validate(task["result"])
            if task["status"] in ("failed", "cancelled"):
                return CallToolResult(content=[], structured_content=task, is_error=True)
            for key, request in task.get("inputRequests", {}).items():
                if self.answer is not None and key not in answered:
                    answered.add(key)
                    responses = {key: self.answer(key, request)}
                    await ask_task(session, "tasks/update", taskId=task_id, inputResponses=responses)
            await asyncio.sleep(0.05)


async def ask_task(session: Any, method: str, **params: Any) -> dict[str, Any]:
    request = TaskRequest(method=method, params=AnyParams(**params))
    found = await session.send_request(request, TaskDocument)
    return found.model_dump(mode="json", by_alias=True, exclude_none=True)


Connect = Callable[..., Client]


@pytest.fixture
async def host(project: Project, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    """`host(**options)` is a client that talks to a server in this process."""
    feeds: list[Feed] = []

    def connect(*, names: tuple[str, ...] = (), tool_each: bool = False, **options: Any) -> Client:
        for name, value in project.environment.items():
            monkeypatch.setenv(name, value)
        feeds.append(Feed(project.cwd.resolve()))
        return Client(McpServer(feeds[-1], Offer(names, tool_each)), **options)

    yield connect
    for feed in feeds:
        await feed.close()


def stdio(project: Project, *arguments: str) -> StdioServerParameters:
    """Return how a host starts `retinue mcp` in the project."""
    program, *words = project.program
    return StdioServerParameters(
        command=program, args=[*words, "mcp", *arguments], env=project.environment, cwd=str(project.cwd)
    )


async def until(find: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """Return what `find` gives as soon as it gives something."""
    async with asyncio.timeout(seconds):
        while True:
            found = await find()
            if found:
                return found
            await asyncio.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
