"""`retinue mcp` as a process: it is killed, its host goes away, it is fed garbage, and libraries print."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from typing import Any

import pytest
from mcp.client.client import Client
from tests.frontends.mcp.conftest import TaskHost, ask_task, stdio, until
from tests.frontends.mcp.test_mcp_hosts import edits_a_file
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
RUN = {"name": "run_agent", "arguments": {"agent": "Explore", "task": "Look"}}


class RawHost:
    """A host that writes lines to the program and reads lines from it."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self.process = project.start("mcp", *arguments, stdin=subprocess.PIPE)
        self.number = 0

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": {**params, "_meta": META}}
        self.send(json.dumps(request))
        while True:
            found = self.read()
            if found.get("id") == self.number:
                return found

    def task(self, method: str, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(method, taskId=task_id)["result"]
        return found

    def finish(self, task_id: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            task = self.task("tasks/get", task_id)
            if task["status"] != "working":
                return task
            time.sleep(0.05)
        raise AssertionError("it did not end")

    def end(self) -> tuple[str, str]:
        """Close stdin, and return what is left on both streams."""
        return self.process.communicate(timeout=60)


@pytest.fixture
def raw(project: Project):
    started: list[RawHost] = []

    def start(*arguments: str) -> RawHost:
        started.append(RawHost(project, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


class Slow:
    """A model that calls a tool and then waits until it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.waits = threading.Event()

    def __call__(self, request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("read", {"path": "f0.txt"})])
        self.waits.set()
        self.free.wait(60)
        return Reply(text="At last.")


def test_a_task_outlives_kill_9_of_the_server_and_the_next_one_answers(project: Project, serve: Any, raw: Any) -> None:
    model = Slow()
    serve(model)
    first = raw()
    made = first.ask("tools/call", **RUN)["result"]
    assert made["resultType"] == "task"
    assert model.waits.wait(60)
    # The model is asked while the result of the read is still on its way to the disk.
    deadline = time.monotonic() + 60
    while "f0.txt" not in project.retinue("runs", "effects", made["taskId"]).stdout and time.monotonic() < deadline:
        time.sleep(0.05)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    model.free.set()
    second = raw()
    task = second.finish(made["taskId"])
    assert task["status"] == "completed"
    details = task["result"]["structuredContent"]
    assert details["runId"] == made["taskId"]
    assert details["results"][0]["output"] == "At last."
    assert details["record"]["filesRead"] == ["f0.txt"]


def test_an_approval_outlives_kill_9_and_is_given_to_the_next_server(project: Project, serve: Any, raw: Any) -> None:
    def write_until_it_is_there(request: Request) -> Reply:
        if "Created new.txt" in str(request.results):
            return Reply(text="It is there.")
        return Reply(calls=[("write", {"path": "new.txt", "content": "brand new line\n"})])

    project.mode = "default"
    serve(write_until_it_is_there)
    first = raw()
    write = {"name": "run_agent", "arguments": {"agent": "general-purpose", "task": "Write a file"}}
    task_id = first.ask("tools/call", **write)["result"]["taskId"]
    (key,) = first.finish(task_id)["inputRequests"]
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = raw()
    asked = second.finish(task_id)
    assert asked["status"] == "input_required"
    assert list(asked["inputRequests"]) == [key]
    assert not (project.cwd / "new.txt").exists()
    allowed = {key: {"action": "accept", "content": {"choice": "allow"}}}
    assert "error" not in second.ask("tasks/update", taskId=task_id, inputResponses=allowed)
    deadline = time.monotonic() + 60
    while (task := second.finish(task_id))["status"] == "input_required" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert task["status"] == "completed"
    assert (project.cwd / "new.txt").read_text() == "brand new line\n"


def test_two_servers_that_are_asked_at_once_take_a_task_up_once(serve: Any, raw: Any) -> None:
    model = Slow()
    server = serve(model)
    first = raw()
    task_id = first.ask("tools/call", **RUN)["result"]["taskId"]
    assert model.waits.wait(60)
    others = [raw(), raw()]
    for other in others:
        other.ask("tools/list")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    before = len(server.requests)
    found: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda other=other: found.append(other.finish(task_id))) for other in others]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    model.free.set()
    for thread in threads:
        thread.join(60)
    assert [task["status"] for task in found] == ["completed", "completed"]
    outputs = {task["result"]["structuredContent"]["results"][0]["output"] for task in found}
    assert outputs == {"At last."}
    assert len(server.requests) == before + 1


def test_a_server_that_is_told_to_end_leaves_its_task_to_the_next_one(serve: Any, raw: Any) -> None:
    model = Slow()
    serve(model)
    first = raw()
    made = first.ask("tools/call", **RUN)["result"]
    assert model.waits.wait(60)
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(30) == 0
    model.free.set()
    task = raw().finish(made["taskId"])
    assert task["result"]["structuredContent"]["results"][0]["output"] == "At last."


def test_runs_go_on_when_the_host_goes_away_and_another_server_follows_them(serve: Any, raw: Any) -> None:
    model = Slow()
    serve(model)
    first = raw()
    made = first.ask("tools/call", **RUN)["result"]
    assert model.waits.wait(60)
    assert first.process.stdin is not None
    first.process.stdin.close()
    second = raw()
    assert second.task("tasks/get", made["taskId"])["status"] == "working"
    shown = second.ask("tools/call", name="list_runs", arguments={})["result"]["structuredContent"]["runs"]
    assert shown[0]["pid"] == first.process.pid
    model.free.set()
    assert second.finish(made["taskId"])["status"] == "completed"
    assert first.process.wait(30) == 0


def test_a_task_that_was_cancelled_is_not_taken_up_again(serve: Any, raw: Any) -> None:
    model = Slow()
    serve(model)
    first = raw()
    made = first.ask("tools/call", **RUN)["result"]
    assert model.waits.wait(60)
    first.task("tasks/cancel", made["taskId"])
    assert first.finish(made["taskId"])["status"] == "cancelled"
    first.end()
    assert raw().task("tasks/get", made["taskId"])["status"] == "cancelled"


def test_stdout_carries_the_protocol_and_nothing_else(project: Project, serve: Any, raw: Any) -> None:
    hook = {"hooks": {"SubagentStart": [{"hooks": [{"type": "command", "command": "echo from a hook"}]}]}}
    (project.home / ".retinue").mkdir()
    (project.home / ".retinue" / "settings.json").write_text(json.dumps(hook))
    serve(lambda request: Reply(text="Done."))
    host = raw()
    made = host.ask("tools/call", **RUN)["result"]
    assert host.finish(made["taskId"])["status"] == "completed"
    for line in ("{", "null", "[]", '{"jsonrpc": "2.0"}', "\ufffd" * 10, '{"jsonrpc":"2.0","id":9,"method":"no/such"}'):
        host.send(line)
    host.send(json.dumps({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": 5, "_meta": META}}))
    host.send("x" * 3_000_000)
    assert host.ask("tools/list")["result"]["tools"]
    out, _ = host.end()
    for line in out.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"
    assert host.process.returncode == 0


def test_what_prints_to_stdout_prints_to_stderr(project: Project) -> None:
    program = (
        "import os, sys\n"
        "from retinue.frontends.mcp import claim_streams\n"
        "streams = claim_streams()\n"
        "print('printed', flush=True)\n"
        "os.write(1, b'written\\n')\n"
        "os.system('echo from a child; cat')\n"
        "streams.sink.write(b'frame\\n')\n"
        "streams.sink.flush()\n"
    )
    command = [project.program[0], "-c", program]
    done = subprocess.run(command, input="for the protocol", capture_output=True, text=True, env=project.environment)
    assert done.stdout == "frame\n"
    assert done.stderr.split("\n")[:3] == ["printed", "written", "from a child"]


async def test_the_official_client_follows_a_task_into_the_next_server(project: Project, serve: Any) -> None:
    model = Slow()
    serve(model)
    tasks = TaskHost(follow=False)
    async with Client(stdio(project), extensions=[tasks]) as client:
        await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
        await asyncio.to_thread(model.waits.wait, 60)
    model.free.set()
    again = TaskHost()
    async with Client(stdio(project), extensions=[again]) as client:
        result = await again.finish(client.session, tasks.created[0])
    assert result.structured_content["results"][0]["output"] == "At last."


async def test_changed_agent_files_are_announced(project: Project) -> None:
    folder = project.cwd / ".claude" / "agents"
    folder.mkdir(parents=True)
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(getattr(message, "method", type(message).__name__))

    async with Client(stdio(project, "--tools", "per-agent"), mode="legacy", message_handler=hear) as client:
        before = {tool.name for tool in (await client.list_tools()).tools}
        (folder / "poet.md").write_text("---\nname: poet\ndescription: Writes verse\ntools: Read\n---\nWrite verse.\n")

        async def told() -> bool:
            return "notifications/tools/list_changed" in heard

        await until(told)
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() - before == {"agent_poet"}
        assert tools["agent_poet"].annotations.read_only_hint is True
        assert "Writes verse" in tools["agent_poet"].description
    assert "notifications/resources/list_changed" in heard


async def test_newer_hosts_that_listen_hear_of_changed_agent_files(project: Project) -> None:
    folder = project.cwd / ".claude" / "agents"
    folder.mkdir(parents=True)
    async with Client(stdio(project)) as client:
        await client.list_tools()
        async with client.listen(tools_list_changed=True, resources_list_changed=True) as changes:
            (folder / "poet.md").write_text("---\nname: poet\ndescription: Writes verse\n---\nWrite verse.\n")
            async with asyncio.timeout(60):
                heard = [type(await anext(changes)).__name__, type(await anext(changes)).__name__]
        assert sorted(heard) == ["ResourcesListChanged", "ToolsListChanged"]
        (tool,) = [each for each in (await client.list_tools()).tools if each.name == "run_agent"]
    assert "- poet: Writes verse" in tool.description


def test_without_anyone_to_ask_the_headless_policy_decides(project: Project, serve: Any, raw: Any) -> None:
    project.mode = "default"
    serve(edits_a_file)
    host = raw("--unattended")
    write = {"name": "run_agent", "arguments": {"agent": "general-purpose", "task": "Write a file"}}
    task = host.finish(host.ask("tools/call", **write)["result"]["taskId"])
    assert task["status"] == "completed"
    assert task["result"]["structuredContent"]["record"]["denials"]
    assert not (project.cwd / "new.txt").exists()


def test_names_that_mean_no_agent_are_reported_on_stderr(raw: Any) -> None:
    host = raw("--agents", "Explore,nobdy")
    host.ask("tools/list")
    _, error = host.end()
    assert "There is no agent 'nobdy'" in error
    assert "Explore" not in error.splitlines()[0].split("Available")[0]


def test_the_program_does_not_outlive_its_host_without_runs(raw: Any) -> None:
    host = raw()
    host.ask("server/discover")
    began = host.process.pid
    host.end()
    assert host.process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(began, 0)


async def test_a_cancelled_task_is_shown_by_the_client(project: Project, serve: Any) -> None:
    model = Slow()
    serve(model)
    tasks = TaskHost(follow=False)
    async with Client(stdio(project), extensions=[tasks]) as client:
        await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
        await asyncio.to_thread(model.waits.wait, 60)
        await ask_task(client.session, "tasks/cancel", taskId=tasks.created[0])
        result = await tasks.finish(client.session, tasks.created[0])
    assert result.is_error
    assert tasks.seen[-1] == "cancelled"
