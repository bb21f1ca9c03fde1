"""One process per server, whoever uses it, and none when nobody does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.capabilities.mcp.config import read_server
from retinue.capabilities.mcp.connection import ServerError, ServerGoneError
from retinue.capabilities.mcp.pool import Caller, Server
from retinue.tools.processes import CannotStartError
from tests.capabilities.mcp.conftest import HERE, Scene, alive, until


def quiet(text: str) -> None:
    pass


async def call(server: Server, tool: str, seconds: float | None = 60.0, /, **arguments: Any) -> str:
    caller = Caller((Path("/"),), seconds)
    result = await server.call(tool, arguments, caller, quiet)
    return "".join(getattr(part, "text", "") for part in result.content)


async def test_fifty_callers_share_one_process(scene: Scene) -> None:
    server = scene.sdk()
    holders = [object() for _ in range(50)]
    for holder in holders:
        server.hold(holder, scene.roots)
    answers = await asyncio.gather(*(call(scene.sdk(), "add", a=n, b=1) for n in range(50)))
    assert answers == [str(n + 1) for n in range(50)]
    assert len(scene.pids) == server.starts == 1
    for holder in holders[:-1]:
        server.release(holder)
    assert alive(scene.pids[0]), "one still holds it"
    server.release(holders[-1])
    await scene.pool.close_unused()
    await until(lambda: not alive(scene.pids[0]))


async def test_a_server_is_closed_a_while_after_the_last_use(scene: Scene) -> None:
    server = scene.server(scene.config("raw"), linger_seconds=0.05)
    await call(server, "echo")
    await until(lambda: not alive(scene.pids[0]))
    assert await call(server, "echo", x=1) == '{"x": 1}', "the next use starts it again"
    assert len(scene.pids) == 2


async def test_a_crash_in_a_call_is_told_and_the_next_call_gets_a_new_process(scene: Scene) -> None:
    server = scene.sdk()
    with pytest.raises(ServerGoneError, match="about to crash"):
        await call(server, "crash")
    assert await call(server, "add", a=1, b=1) == "2"
    assert len(scene.pids) == 2
    assert not alive(scene.pids[0])


async def test_a_server_that_keeps_failing_is_asked_less_and_less(scene: Scene) -> None:
    server = scene.server(scene.config("raw", "mute"), start_seconds=0.2)
    for _ in range(3):
        with pytest.raises(CannotStartError, match=r"did not answer within 0.2 s"):
            await server.ready()
    server._not_before += 60
    with pytest.raises(CannotStartError, match=r"failed 3 times .* next attempt in"):
        await server.ready()
    assert server.starts == 3
    await until(lambda: not any(map(alive, scene.pids)))


async def test_a_server_that_must_not_restart_stays_down(scene: Scene) -> None:
    server = scene.sdk(autoReconnect=False)
    with pytest.raises(ServerGoneError):
        await call(server, "crash")
    with pytest.raises(CannotStartError, match="not to start it again"):
        await call(server, "add", a=1, b=1)


async def test_a_call_that_hangs_ends_and_the_server_goes_on(scene: Scene) -> None:
    server = scene.sdk()
    await server.ready()
    with pytest.raises(TimeoutError):
        await call(server, "hang", 0.2)
    assert await call(server, "add", a=1, b=1) == "2"
    assert len(scene.pids) == 1, "it answers pings: it is not broken"


async def test_a_server_that_is_frozen_is_replaced(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.capabilities.mcp.connection._PING_SECONDS", 0.2)
    server = scene.raw()
    await call(server, "echo")
    os.kill(scene.pids[0], signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await call(server, "echo", 0.2)
    assert server._health_check is not None
    await server._health_check
    assert await call(server, "echo", x=2) == '{"x": 2}'
    assert len(scene.pids) == 2
    await until(lambda: not alive(scene.pids[0]))


async def test_progress_is_a_sign_of_life_and_reaches_the_caller(scene: Scene) -> None:
    server, told = scene.sdk(), []
    path = scene.folder / "slow"
    caller = Caller(scene.roots, 5.0)
    await server.call("slow", {"path": str(path), "steps": 3}, caller, told.append)
    assert told == ["1/3 step 1\n", "2/3 step 2\n", "3/3 step 3\n"]
    assert path.read_text() == "done"


async def test_cancelling_a_call_tells_the_server(scene: Scene) -> None:
    server, path = scene.sdk(), scene.folder / "slow"
    started = asyncio.Event()
    caller = Caller(scene.roots, 60.0)
    arguments = {"path": str(path), "steps": 100_000}
    task = asyncio.create_task(server.call("slow", arguments, caller, lambda text: started.set()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: path.exists() and path.read_text() == "cancelled")
    assert await call(server, "add", a=1, b=1) == "2"


async def test_noise_beside_the_protocol_is_kept_apart(scene: Scene) -> None:
    server = scene.raw("banner")
    assert await call(server, "echo", x=1) == '{"x": 1}'
    kept = scene.log("raw")
    assert "[stdout] {not json" in kept
    assert "warming up" in kept
    assert len(kept) < 3_000_000


async def test_a_flood_on_standard_error_is_bounded(scene: Scene) -> None:
    flood = "import os,sys\nfor _ in range(300): os.write(2, b'y' * 100000 + b'\\n')\nexec(open(sys.argv[1]).read())"
    raw = {"command": sys.executable, "args": ["-c", flood, str(HERE / "raw_server.py")]}
    config = read_server("flood", raw, os.environ, origin="test", provenance="person")
    assert config is not None
    assert await call(scene.server(config), "echo", x=1) == '{"x": 1}'
    sizes = [path.stat().st_size for path in (scene.folder / "logs").iterdir()]
    assert sum(sizes) < 6_000_000


async def test_a_message_without_end_ends_the_connection(scene: Scene) -> None:
    with pytest.raises(ServerGoneError, match="more than"):
        await call(scene.raw("huge"), "echo")
    await until(lambda: not any(map(alive, scene.pids)))


async def test_an_answer_that_is_none_is_an_error(scene: Scene) -> None:
    server = scene.raw("nonsense")
    with pytest.raises(ServerError, match="does not follow the protocol"):
        await call(server, "echo")


async def test_tools_that_come_late_are_listed(scene: Scene) -> None:
    server = scene.raw("late")
    await call(server, "echo")
    before = server.version
    await until(lambda: server.version > before or before > 1)
    assert server.listing is not None
    assert [tool.name for tool in server.listing.tools] == ["echo", "later"]


async def test_a_deaf_server_and_its_daemons_are_ended(scene: Scene) -> None:
    deaf, sdk = scene.raw("deaf"), scene.sdk()
    await call(deaf, "echo")
    daemon = int(await call(sdk, "daemon", path=str(scene.folder / "daemon")))
    assert alive(daemon)
    await scene.pool.close_unused()
    await until(lambda: not any(map(alive, (*scene.pids, daemon))))


async def test_a_server_that_is_killed_takes_its_daemons_along(scene: Scene) -> None:
    server = scene.sdk()
    daemon = int(await call(server, "daemon", path=str(scene.folder / "daemon")))
    os.kill(scene.pids[0], signal.SIGKILL)
    await until(lambda: not alive(daemon))
    # A call that meets the end of the server is told so; the next one starts it again.
    with contextlib.suppress(ServerGoneError):
        await call(server, "add", a=0, b=0)
    assert await call(server, "add", a=1, b=1) == "2"


async def test_servers_see_little_of_the_environment(scene: Scene) -> None:
    environment = {**os.environ, "ANTHROPIC_API_KEY": "sk-secret", "MY_TOKEN": "t0ken"}
    raw = {
        "command": sys.executable,
        "args": [str(HERE / "sdk_server.py"), "stdio"],
        "env": {"GIVEN": "${MY_TOKEN}", "OTHER": "${NOT_SET:-fallback}"},
    }
    config = read_server("sdk", raw, environment, origin="test", provenance="person")
    assert config is not None
    server = scene.server(config, environment=environment)
    seen = [
        await call(server, "environment", name=name) for name in ("ANTHROPIC_API_KEY", "MY_TOKEN", "GIVEN", "OTHER")
    ]
    assert seen == ["(not set)", "(not set)", "t0ken", "fallback"]


async def test_no_more_calls_at_once_than_configured(scene: Scene) -> None:
    server = scene.sdk(concurrency=1)
    path = scene.folder / "slow"
    long = asyncio.create_task(call(server, "slow", path=str(path), steps=10))
    await asyncio.sleep(0)
    assert await call(server, "add", a=1, b=1) == "2"
    assert path.read_text() == "done", "the second call waited for the first"
    await long


async def test_roots_are_those_all_holders_share(scene: Scene) -> None:
    server = scene.sdk()
    one, two = scene.folder / "one", scene.folder / "two"
    first = await server.call("folders", {}, Caller((one,), 60.0), quiet)
    assert getattr(first.content[0], "text", "") == one.as_uri()
    server.hold("holder", (one,))
    other = scene.pool.server(server.config, scene.options, (two,))
    assert other is not server, "it asks for folders: runs with others have their own"
    second = await other.call("folders", {}, Caller((two,), 60.0), quiet)
    assert getattr(second.content[0], "text", "") == two.as_uri()
    server.release("holder")


async def test_the_list_is_remembered_across_processes(scene: Scene) -> None:
    server = scene.raw("many=3")
    await server.ready()
    digest = server.config.digest
    await scene.pool.close_unused()
    remembered = scene.options.memory.recall(digest)
    assert remembered is not None
    assert [tool.name for tool in remembered.tools] == ["echo", "tool-0", "tool-1", "tool-2"]
    assert scene.options.memory.recall("other") is None
    (scene.folder / "cache" / f"{digest}.json").write_text('{"at": "x"')
    assert scene.options.memory.recall(digest) is None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_over_http(scene: Scene, transport: str) -> None:
    port = _free_port()
    command = [sys.executable, str(HERE / "sdk_server.py"), transport, str(port)]

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    async def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await until(listens)
        return process

    process = await start()
    url = f"http://127.0.0.1:{port}/{'mcp' if transport == 'http' else 'sse'}"
    config = read_server(
        "web", {"url": url, "type": transport, "headers": {"X-Key": "k"}}, {}, origin="test", provenance="person"
    )
    assert config is not None
    try:
        server = scene.server(config)
        assert await call(server, "add", a=2, b=2) == "4"
        with pytest.raises(TimeoutError):
            await call(server, "hang", 0.3)
        assert await call(server, "add", a=2, b=3) == "5"
        process.kill()
        process.wait()
        with pytest.raises((ServerGoneError, ServerError, CannotStartError, TimeoutError)):
            await call(server, "add", 2.0, a=1, b=1)
        process = await start()
        server._not_before = 0.0
        assert await call(server, "add", a=1, b=2) == "3", "a server that came back is found again"
    finally:
        process.kill()
        process.wait()
        await scene.pool.close_unused()


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, b"no", "text/plain", "401"),
        (500, b"oops", "text/html", "500"),
        (200, b"<html>", "text/html", "content type"),
        (200, b'{"x": 1}', "application/json", "parse"),
    ],
)
async def test_web_servers_that_speak_something_else(
    scene: Scene, status: int, body: bytes, kind: str, words: str
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
        config = read_server(
            "web", {"url": f"http://127.0.0.1:{web.server_port}/"}, {}, origin="test", provenance="person"
        )
        assert config is not None
        with pytest.raises(CannotStartError, match=words):
            await scene.server(config).ready()
        web.shutdown()


async def test_a_program_that_does_not_exist(scene: Scene) -> None:
    config = replace(scene.config("raw"), command="no-such-program")
    with pytest.raises(CannotStartError, match="'no-such-program' was not found"):
        await scene.server(config).ready()
    with pytest.raises(CannotStartError, match="does not exist"):
        await scene.server(replace(scene.config("raw"), cwd="/no/such/folder")).ready()


async def test_a_question_is_withdrawn_with_the_call_that_asked_it(scene: Scene) -> None:
    server = scene.sdk()
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def elicit(params: Any) -> Any:
        asked.set()
        try:
            await asyncio.sleep(3600)
        finally:
            withdrawn.set()

    caller = Caller(scene.roots, 0.2, elicit)
    task = asyncio.create_task(server.call("wish", {}, caller, quiet))
    async with asyncio.timeout(60):
        await asked.wait()
    await asyncio.sleep(0.4)
    assert not task.done(), "the clock stands while a person is asked"
    task.cancel()
    async with asyncio.timeout(60):
        await withdrawn.wait()
    assert await call(server, "add", a=1, b=1) == "2"


async def test_without_a_watcher_the_group_is_killed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that was frozen into one file, and has no interpreter to start."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    server = scene.raw("deaf")
    await call(server, "echo")
    assert server.pid == scene.pids[0]
    await scene.pool.close_unused()
    await until(lambda: not alive(scene.pids[0]))
