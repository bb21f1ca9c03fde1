# ruff: noqa: E501 - scripts read better on one line
"""The list of hosts: what a confined shell reaches through the only door it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.inside.proxy import address, is_allowed
from retinue.guard.sandbox.kernel import why_not
from retinue.guard.sandbox.policy import SandboxPolicy, namespaces_work

pytestmark = pytest.mark.skipif(why_not() is not None or not namespaces_work(), reason="needs namespaces")


@pytest.fixture
def port() -> Iterator[int]:
    """A server on this machine that says what it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = f"served {self.path}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def box(scene: Scene, port: int) -> Iterator[Box]:
    made = Box(SandboxPolicy(network=("*.example.invalid", f"localhost:{port}")), "run")
    yield made
    made.close()


async def test_a_listed_host_is_reached(scene: Scene, box: Box, port: int):
    assert not box.readonly
    script = f"curl -sS -m 10 --noproxy '' http://localhost:{port}/a?b=c; echo; curl -sS -m 10 -p --noproxy '' http://localhost:{port}/d"
    output = await scene.shell(script, box)
    assert "served /a?b=c" in output.text
    assert "served /d" in output.text


async def test_others_are_not(scene: Scene, box: Box, port: int):
    script = f"""
        curl -sS -m 10 --noproxy '' http://localhost:$PORT/
        curl -sS -m 10 --noproxy '' -p http://127.0.0.1:{port}/
        curl -sS -m 10 http://example.com/ ; curl -sS -m 10 https://example.com/
        curl -sS -m 10 --noproxy '*' http://127.0.0.1:$PORT/; echo x > /dev/tcp/127.0.0.1/$PORT; echo x > /dev/udp/127.0.0.1/$UDP
        printf 'GET / HTTP/1.1\\r\\n\\r\\n' | nc -w 1 127.0.0.1 3128; printf 'nonsense\\r\\n\\r\\n' | nc -w 1 127.0.0.1 3128
    """
    output = await scene.shell(script, box)
    assert "served" not in output.text
    assert f"localhost:{scene.port} is not among the hosts that sandbox.network allows" in output.text
    assert "example.com:443" in output.text or "403" in output.text
    assert scene.heard == []


async def test_it_ends_with_the_program(scene: Scene, box: Box):
    assert (await scene.shell("exit 9", box)).effect.exit_code == 9
    assert (await scene.shell("sleep 60", box, seconds=0.5)).effect.exit_code == 124


@pytest.mark.parametrize(
    ("host", "port", "entries", "expected"),
    [
        ("pypi.org", 443, ["pypi.org"], True),
        ("pypi.org", 80, ["PyPI.org"], True),
        ("pypi.org", 22, ["pypi.org"], False),
        ("pypi.org", 8080, ["pypi.org:8080"], True),
        ("pypi.org", 443, ["pypi.org:8080"], False),
        ("evil-pypi.org", 443, ["pypi.org"], False),
        ("pypi.org.evil.com", 443, ["pypi.org"], False),
        ("a.example.com", 443, ["*.example.com"], True),
        ("a.b.example.com", 443, ["*.example.com"], True),
        ("example.com", 443, ["*.example.com"], False),
        ("evilexample.com", 443, ["*.example.com"], False),
        (".example.com", 443, ["*.example.com"], False),
        ("::1", 443, ["[::1]:443"], True),
        ("anything", 443, ["*"], False),
    ],
)
def test_which_hosts_an_entry_means(host: str, port: int, entries: list[str], expected: bool):
    assert is_allowed(host, port, entries) is expected


@pytest.mark.parametrize("target", ["user:pw@pypi.org:443", "pypi.org:x", ""])
def test_odd_addresses_are_refused(target: str):
    with pytest.raises(ValueError):
        address(target, tunnel=True) if target else address("ftp://x/", tunnel=False)
