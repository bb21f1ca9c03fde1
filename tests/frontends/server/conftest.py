"""`retinue serve` as a real process, and a client for it that is no more than `http.client`."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.program.conftest import Project


class Served:
    """A running server. `get` and `post` return status and document."""

    def __init__(self, process: subprocess.Popen[str], project: Project) -> None:
        self.process = process
        self.project = project
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        self.info: dict[str, Any] = json.loads(line)
        self.port: int = self.info["port"]
        self.token: str = self.info["token"]

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def link(self) -> str:
        """Return a new address that signs one page in."""
        link: str = self.project.json("open", "--json")["url"]
        return link

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {**self.headers, **(headers or {})}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        found = response.read()
        connection.close()
        kind = response.headers["content-type"] or ""
        document = json.loads(found) if "json" in kind else found
        return response.status, {name.lower(): value for name, value in response.getheaders()}, document

    def get(self, path: str, **headers: str) -> Any:
        status, _, document = self.request("GET", path, headers=headers)
        assert status == 200, document
        return document

    def post(self, path: str, body: Any, status: int = 200, **headers: str) -> Any:
        found, _, document = self.request("POST", path, body, headers)
        assert found == status, document
        return document

    def until(self, path: str, condition: Callable[[Any], Any]) -> Any:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = condition(self.get(path))
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError("it did not happen")

    def ended(self, run_id: str) -> Any:
        return self.until(f"/v1/runs/{run_id}", lambda found: found if found["run"]["state"] == "ended" else None)

    def raw(self, data: bytes) -> bytes:
        """Send bytes as they are, and return what comes until the other side closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(data)
            found = b""
            while True:
                try:
                    piece = connection.recv(65536)
                except (TimeoutError, ConnectionResetError):
                    return found
                if not piece:
                    return found
                found += piece

    def stream(self, path: str, last: int | None = None) -> EventReader:
        return EventReader(self, path, last)

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, error = self.process.communicate(timeout=30)
        return self.process.returncode, error


class EventReader:
    """Reads server-sent events, one `next` at a time: (number or None, event)."""

    def __init__(self, server: Served, path: str, last: int | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        headers = dict(server.headers)
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def next(self) -> tuple[int | None, dict[str, Any]]:
        number, data = None, None
        while True:
            line = self.response.readline()
            if not line:
                raise EOFError
            text = line.decode().rstrip("\n")
            if text.startswith("id: "):
                number = int(text[4:])
            elif text.startswith("data: "):
                data = json.loads(text[6:])
            elif not text and data is not None:
                return number, data

    def until(self, kind: str) -> list[tuple[int | None, dict[str, Any]]]:
        found = [self.next()]
        while found[-1][1]["type"] != kind:
            found.append(self.next())
        return found

    def close(self) -> None:
        self.response.close()
        self._connection.close()


FILES = 1024
"""How many files a server may open, as on most machines."""


@contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * FILES:
        pytest.skip("this process may not open as many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def flooded(server: Served) -> Iterator[None]:
    """Two threads open connections as fast as they can, send half a header, and hold them."""
    over = threading.Event()

    def flood() -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            held.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            held[-1].sendall(b"GET /v1/runs HTTP/1.1\r\n")
            if len(held) > FILES // 2 + 100:
                held.pop(0).close()
        for connection in held:
            connection.close()

    attackers = [threading.Thread(target=flood) for _ in range(2)]
    for attacker in attackers:
        attacker.start()
    try:
        time.sleep(1.0)
        yield
    finally:
        over.set()
        for attacker in attackers:
            attacker.join()


@pytest.fixture
def serving(project: Project) -> Iterator[Callable[..., Served]]:
    """`serving(...)` starts the program with these further options."""
    started: list[Served] = []

    def start(*options: str) -> Served:
        port = () if "--port" in options else ("--port", "0")
        process = project.start("serve", *port, "--json", "--no-browser", *options)
        started.append(Served(process, project))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.terminate()
        each.process.communicate(timeout=30)
