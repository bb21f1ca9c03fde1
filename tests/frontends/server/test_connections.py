"""Nobody can keep others out of the server: not with many connections, and not by sending or reading slowly."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
from tests.frontends.server.conftest import FILES, Served, flooded, many_files
from tests.program.conftest import Project

from retinue.frontends.server import connections
from retinue.frontends.server.connections import (
    HEADER_SECONDS,
    MAX_HEADER_BYTES,
    GuardedConnection,
    UnprovenConnections,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("crowded")
    project = Project(folder / "project", folder / "home")
    project.cwd.mkdir()
    project.home.mkdir()
    limited = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (FILES, FILES))
    process = project.start("serve", "--port", "0", "--json", "--no-browser", preexec_fn=limited)
    yield Served(process, project)
    process.terminate()
    process.communicate(timeout=30)


def connect(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def closed_after(connection: socket.socket) -> float:
    began = time.monotonic()
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - began


PUBLIC = b"GET /static/app/main.js HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"


@pytest.mark.parametrize("kind", ["silent", "half a header", "a file of the page", "a body that does not come"])
def test_more_connections_than_files_keep_nobody_out(server: Served, kind: str) -> None:
    beginnings = {
        "silent": b"",
        "half a header": b"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1",
        "a file of the page": PUBLIC % server.port,
        "a body that does not come": PUBLIC.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n") % server.port,
    }
    events = server.stream("/v1/events")
    held = []
    with many_files():
        for number in range(FILES + 500):
            held.append(connect(server))
            held[-1].sendall(beginnings[kind])
            if number % 100 == 0:
                began = time.monotonic()
                assert server.get("/v1/runs")["runs"] == []
                assert time.monotonic() - began < 5
        assert server.get("/v1/runs")["runs"] == []
        for connection in held:
            connection.close()
    assert not events.response.closed
    events.close()


def test_connections_that_are_opened_without_end_keep_nobody_out(server: Served) -> None:
    took = []
    with many_files(), flooded(server):
        for _ in range(20):
            began = time.monotonic()
            assert server.get("/v1/runs")["runs"] == []
            took.append(time.monotonic() - began)
    assert sorted(took)[10] < 2


def test_headers_must_arrive_in_time_also_those_of_a_second_request(server: Served) -> None:
    first = connect(server)
    first.sendall(b"GET / HTTP/1.1\r\nHost: ")
    second = connect(server)
    second.sendall(PUBLIC % server.port + b"GET / HTTP/1.1\r\nHost: ")
    for connection in (first, second):
        # A byte now and then does not help.
        connection.sendall(b"1")
        assert closed_after(connection) < HEADER_SECONDS + 5
        connection.close()


def test_headers_without_end_are_not_kept(server: Served) -> None:
    endless = connect(server)
    endless.sendall(b"GET / HTTP/1.1\r\n")
    sent = 0
    began = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() < began + HEADER_SECONDS:
            sent += endless.send(b"X-Header: " + b"x" * 1000 + b"\r\n")
            time.sleep(0.0005)
    assert time.monotonic() - began < HEADER_SECONDS - 1
    assert sent >= MAX_HEADER_BYTES
    endless.close()


# Clients that do not read: in this process, with less patience


@asynccontextmanager
async def small_server(app: Any) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    http = partial(GuardedConnection, UnprovenConnections(), None)
    server = uvicorn.Server(uvicorn.Config(app, http=http, log_config=None, lifespan="off", ws="none"))  # type: ignore[arg-type]
    serving = asyncio.create_task(server._serve([listener]))
    yield listener.getsockname()[1]
    server.should_exit = server.force_exit = True
    await serving


class Endless:
    """Sends without end, until the client is gone."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.sent = 0

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        watching = asyncio.create_task(self._watch(receive))
        while not self.gone.is_set():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            self.sent += 65536
            await asyncio.sleep(0)
        await watching

    async def _watch(self, receive: Callable[[], Any]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


async def test_a_client_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.2)
    app = Endless()
    async with asyncio.timeout(30), small_server(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await app.gone.wait()
        writer.close()


async def test_a_client_that_reads_slowly_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.5)
    app = Endless()
    async with asyncio.timeout(60), small_server(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert await reader.read(2**18)
            await asyncio.sleep(0.01)
        assert not app.gone.is_set() and app.sent > 2**20
        writer.close()
        await app.gone.wait()
