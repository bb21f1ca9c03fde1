"""Who listens at a port of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from retinue.http.transport import foreign_listener

_LISTEN_AS = """
import os, socket, sys

os.setuid(int(sys.argv[1]))
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_server_of_this_user_is_not_foreign() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert foreign_listener(server.getsockname()[1]) is None


def test_a_port_without_a_listener_is_foreign() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert foreign_listener(bound.getsockname()[1]) is not None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can listen as another user")
@pytest.mark.parametrize(("uid", "owner"), [(65534, "nobody"), (54321, "number 54321"), (101, None)])
def test_a_server_of_another_person_is_foreign_and_one_of_the_system_is_not(uid: int, owner: str | None) -> None:
    argv = [sys.executable, "-c", _LISTEN_AS, str(uid)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert foreign_listener(int(server.stdout.readline())) == owner
        server.stdin.close()
