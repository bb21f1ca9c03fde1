"""A cable between a worker and the rest, which can be cut: a network namespace of Linux. Needs root and `ip`."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading

CAN_CUT = os.name == "posix" and os.getuid() == 0 and shutil.which("ip") is not None


class Cable:
    """Use with `with`, before anything is started. `prefix` is put before the command of whoever is at the far end."""

    def __init__(self) -> None:
        number = os.getpid() % 4000
        self._space, self._near = f"retinue-{number}", f"rt{number}"
        self._address = f"10.213.{number // 64}.{number % 64 * 4 + 1}"
        self._far_address = f"10.213.{number // 64}.{number % 64 * 4 + 2}"
        self._listening: list[socket.socket] = []
        self.prefix = ("ip", "netns", "exec", self._space)

    def __enter__(self) -> Cable:
        self._ip("netns", "add", self._space)
        self._ip("link", "add", self._near, "type", "veth", "peer", "name", "far", "netns", self._space)
        self._ip("addr", "add", f"{self._address}/30", "dev", self._near)
        self._ip("link", "set", self._near, "up")
        self._ip("-n", self._space, "addr", "add", f"{self._far_address}/30", "dev", "far")
        for each in ("far", "lo"):
            self._ip("-n", self._space, "link", "set", each, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._listening:
            each.close()
        for command in (("link", "del", self._near), ("netns", "del", self._space)):
            subprocess.run(["ip", *command], check=False, capture_output=True)

    def cut(self) -> None:
        """Lose every packet from now on. Nobody is told."""
        self._ip("link", "set", self._near, "down")

    def heal(self) -> None:
        self._ip("link", "set", self._near, "up")

    def forward(self, target: str | tuple[str, int]) -> str:
        """Return `host:port` for the far end, which leads to a socket of this machine."""
        listening = socket.create_server((self._address, 0))
        self._listening.append(listening)
        threading.Thread(target=self._accept, args=(listening, target), daemon=True).start()
        return f"{self._address}:{listening.getsockname()[1]}"

    def _accept(self, listening: socket.socket, target: str | tuple[str, int]) -> None:
        with contextlib.suppress(OSError):
            while True:
                far, _ = listening.accept()
                near = socket.socket(socket.AF_UNIX if isinstance(target, str) else socket.AF_INET)
                near.connect(target)
                for pair in ((far, near), (near, far)):
                    threading.Thread(target=_copy, args=pair, daemon=True).start()

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
