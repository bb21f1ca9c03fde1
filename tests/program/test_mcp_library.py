"""MCP servers shared by many agents of one process, and a server that asks the person."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.core.permission import InboxItem
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_mcp import agent, alive, configure, gone, once, sdk, served, starts, text_of

FLEET = 50


async def test_fifty_agents_share_one_server(project: Project, serve: Any) -> None:
    log = project.cwd / "starts"
    configure(project, {"sdk": sdk(STARTS=str(log))}, maxConcurrent=FLEET)
    agent(project, "worker", "")
    server = serve(once("mcp__sdk__whoami", {}))
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        runs = await asyncio.gather(*(retinue.spawn("worker", f"Task {number}.") for number in range(FLEET)))
        outcomes = await asyncio.gather(*(run.wait() for run in runs))
        assert [outcome.ended for outcome in outcomes] == ["completed"] * FLEET
        assert len(starts(log)) == 1
        assert alive(starts(log)[0]), "it is kept a while for whoever comes next"
    said = [text_of(request.results[0]) for request in server.requests if request.results]
    assert said == [str(starts(log)[0])] * FLEET
    assert gone(*starts(log)), "nothing outlives the object"


async def test_what_a_server_asks_goes_to_the_inbox(project: Project, serve: Any) -> None:
    configure(project, {"sdk": sdk()})
    agent(project, "worker", "")
    server = serve(once("mcp__sdk__wish", {}))
    asked: list[InboxItem] = []

    async def approve(item: InboxItem) -> str:
        asked.append(item)
        return {"color": "green", "count": "7"}.get(item.detail.partition(":")[0].lower(), "yes")

    async with Retinue(project.cwd, environment=project.environment, approve=approve) as retinue:
        outcome = await (await retinue.spawn("worker", "Ask.")).wait()
    assert outcome.ended == "completed"
    assert [item.kind for item in asked] == ["question"] * 3
    assert all("sdk" in item.title and "What would you like?" in item.title for item in asked)
    assert text_of(server.requests[-1].results[0]) == "accept {'color': 'green', 'count': 7, 'sure': True}"


def test_fields_of_a_form_are_chosen_by_title_and_skipped_with_nothing(project: Project, serve: Any) -> None:
    configure(project, {"sdk": sdk()}, permissions={"headless": "wait"})
    agent(project, "worker", "")
    server = serve(once("mcp__sdk__order", {}))
    process = project.start("run", "worker", "Ask.")
    answered: dict[str, str] = {}
    for answer in ("Large", "Milk", "", ""):
        items: list[dict[str, Any]] = []
        while not items or items[0]["id"] in answered:
            items = project.json("inbox", "list", "--json")["items"]
        answered[items[0]["id"]] = items[0]["detail"]
        done = project.retinue("inbox", "answer", items[0]["id"], answer)
        assert done.returncode == 0, done.stderr
    process.communicate(timeout=60)
    told = text_of(server.requests[-1].results[0])
    assert told == "accept {'size': 'l', 'extras': ['m'], 'note': None, 'cups': 2}"
    assert "answer skip for '2'" in list(answered.values())[-1]


async def test_without_anybody_there_the_server_hears_no(project: Project, serve: Any) -> None:
    configure(project, {"sdk": sdk()})
    agent(project, "worker", "")
    server = serve(once("mcp__sdk__wish", {}))
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        outcome = await (await retinue.spawn("worker", "Ask.")).wait()
    assert outcome.ended == "completed"
    assert text_of(server.requests[-1].results[0]) in ("cancel", "decline")


async def test_a_run_that_is_stopped_in_a_call_leaves_nothing(project: Project, serve: Any) -> None:
    log, path = project.cwd / "starts", project.cwd / "slow"
    configure(project, {"sdk": sdk(STARTS=str(log))}, mcp={"startTimeoutSeconds": 60})
    agent(project, "worker", "")
    serve(once("mcp__sdk__slow", {"path": str(path), "steps": 100_000}))
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        run = await retinue.spawn("worker", "Go.")
        async for event in run.events():
            if event.body.type == "tool.progress":
                break
        await run.stop()
        outcome = await run.wait()
        assert outcome.ended == "stopped"
        for _ in range(2_000):
            if path.exists():
                break
            await asyncio.sleep(0.01)
        assert path.read_text() == "cancelled", "the server was told"
    assert not any(map(alive, starts(log))), "nobody holds it any more"


@pytest.fixture(scope="session")
def everything_server() -> dict[str, Any]:
    """The reference server of the protocol's makers, from npm, installed once per machine."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm and node are not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "retinue-tests" / "npm"
    entry = cache / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    if not entry.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(cache)]
        done = subprocess.run(
            [*command, "@modelcontextprotocol/server-everything"], capture_output=True, text=True, timeout=300
        )
        if done.returncode or not entry.is_file():
            pytest.skip(f"the server cannot be installed from npm: {done.stderr[-300:]}")
    return {"command": node, "args": [str(entry), "stdio"]}


async def test_a_server_from_npm(project: Project, serve: Any, everything_server: dict[str, Any]) -> None:
    configure(project, {"everything": everything_server})
    agent(project, "worker", "")

    def answer(request: Request) -> Reply:
        calls = [
            ("mcp__everything__echo", {"message": "across languages"}),
            ("mcp__everything__trigger-long-running-operation", {"duration": 1, "steps": 3}),
            ("mcp__everything__get-tiny-image", {}),
        ]
        return Reply(calls=[calls[request.turn]]) if request.turn < len(calls) else Reply(text="done")

    server = serve(answer)
    progress: list[str] = []
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        run = await retinue.spawn("worker", "Go.")
        async for event in run.events():
            if event.body.type == "tool.progress":
                progress.append(json.dumps(event.body.text))
        outcome = await run.wait()
    assert outcome.ended == "completed", outcome
    assert "mcp__everything__echo" in served(server.requests[0])
    echoed, _, image = server.requests[-1].results
    assert "across languages" in text_of(echoed)
    assert any(part["type"] == "image" for part in image["content"])
    assert progress, "its progress is shown"
