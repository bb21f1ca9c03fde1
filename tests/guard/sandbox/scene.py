"""A workspace, a neighbour, a home, listeners and a process: everything a confined shell must leave alone."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import resource
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.guard.sandbox.attempts import SEGMENT_BYTES

from retinue.core.tool import Confinement, ToolContext, ToolOutput
from retinue.tools.bash import BashTool

_ELSEWHERE = (
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/etc",
    "/var/spool/cron/crontabs",
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/pids",
)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace, self.neighbour, self.home = folder / "workspace", folder / "neighbour", folder / "home"
        self.mark = f"retinue-test-{secrets.token_hex(6)}"
        self.out = secrets.token_hex(6)
        self._populate()
        self.heard: list[str] = []
        self._listen()
        with (self.neighbour / "b.txt").open("a") as kept_open:
            environment = {"PATH": os.environ["PATH"], "TELLTALE": "x"}
            self.victim = subprocess.Popen(["sleep", "3600"], env=environment, stdout=kept_open)

    def _populate(self) -> None:
        for path in (self.workspace / "sub", self.workspace / "empty", self.neighbour, self.home / ".ssh"):
            path.mkdir(parents=True)
        (self.workspace / "a.txt").write_text("alpha\n")
        (self.workspace / "sub" / "c.txt").write_text("gamma\n")
        (self.workspace / ".gitignore").write_text("ignored.txt\n")
        (self.workspace / "ignored.txt").write_text("ignored\n")
        (self.neighbour / "b.txt").write_text("beta\n")
        (self.home / ".bashrc").write_text("\n")
        (self.home / ".gitconfig").write_text("[user]\nname = T\nemail = t@example.invalid\n")
        (self.home / ".ssh" / "id_ed25519").write_text("PRIVATE\n")
        log = self.home / ".retinue" / "projects" / "p" / "log.db"
        log.parent.mkdir(parents=True)
        log.write_text("PRIVATE\n")
        git = ["git", "-C", str(self.workspace), "-c", "user.name=T", "-c", "user.email=t@example.invalid"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *words], check=True, env={"PATH": os.environ["PATH"], "HOME": str(self.home)})
        (self.workspace / "sub" / "c.txt").write_text("gamma, changed\n")

    def _listen(self) -> None:
        self._sockets: list[socket.socket] = []
        self.port = self._open_both(socket.SOCK_STREAM, "tcp")
        self.udp = self._open_both(socket.SOCK_DGRAM, "udp")
        # Paths of sockets are short, whatever the test's folder is called.
        self._short = Path(f"/tmp/{secrets.token_hex(4)}")
        self._short.symlink_to(self.neighbour)
        self._open(socket.AF_UNIX, socket.SOCK_STREAM, f"{self._short}/s", "unix")
        self._open(socket.AF_UNIX, socket.SOCK_DGRAM, f"{self._short}/d", "datagram")
        self._open(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.mark}", "abstract")

    def _open_both(self, kind: int, name: str) -> int:
        """One port for IPv4 and IPv6. One that is free for the first may be taken for the second."""
        while True:
            first, second = socket.socket(socket.AF_INET, kind), socket.socket(socket.AF_INET6, kind)
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("::1", port))
            except OSError as error:
                first.close()
                second.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self._serve(first, kind, name)
            self._serve(second, kind, f"{name}6")
            return port

    def _open(self, family: int, kind: int, address: Any, name: str) -> None:
        end = socket.socket(family, kind)
        end.bind(address)
        self._serve(end, kind, name)

    def _serve(self, end: socket.socket, kind: int, name: str) -> None:
        if kind == socket.SOCK_STREAM:
            end.listen()
        self._sockets.append(end)
        threading.Thread(target=self._hear, args=(end, kind, name), daemon=True).start()

    def _hear(self, end: socket.socket, kind: int, name: str) -> None:
        while True:
            try:
                if kind == socket.SOCK_STREAM:
                    end.accept()[0].close()
                else:
                    end.recv(1000)
            except OSError:
                return
            self.heard.append(name)

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for end in self._sockets:
            end.shutdown(socket.SHUT_RDWR) if end.type == socket.SOCK_STREAM else None
            end.close()
        self._short.unlink()
        for folder in _ELSEWHERE:
            for left in Path(folder).glob(f"{self.mark}*") if Path(folder).is_dir() else ():
                shutil.rmtree(left) if left.is_dir() else left.unlink()

    @property
    def variables(self) -> dict[str, str]:
        return {
            "W": str(self.workspace),
            "N": str(self.neighbour),
            "H": str(self.home),
            "PY": sys.executable,
            "PORT": str(self.port),
            "UDP": str(self.udp),
            "SOCK": f"{self._short}/s",
            "DGRAM": f"{self._short}/d",
            "ABSTRACT": self.mark,
            "VICTIM": str(self.victim.pid),
            "MARK": self.mark,
            "OUT": self.out,
        }

    def context(self, confinement: Confinement | None, **more: Any) -> ToolContext:
        given = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "TMPDIR": str(self.folder / "loose"),
            **self.variables,
        }
        return ToolContext(
            "run",
            (self.workspace,),
            self.folder / "outputs",
            given,
            confine=(lambda _: confinement) if confinement else None,
            clearance="person",
            **more,
        )

    async def shell(self, script: str, confinement: Confinement | None, seconds: float = 60) -> ToolOutput:
        (self.folder / "loose").mkdir(exist_ok=True)
        return await BashTool().run("call", {"command": script, "timeout": seconds}, self.context(confinement))

    def traces(self) -> dict[str, Any]:
        """Everything that an escape could have changed, as it is now."""
        found: dict[str, Any] = {}
        for top in (self.workspace, self.neighbour, self.home):
            for path in (top, *sorted(top.rglob("*"))):
                found[str(path.relative_to(self.folder))] = _trace(path)
        for folder in _ELSEWHERE:
            if Path(folder).is_dir():
                found[folder] = sorted(path.name for path in Path(folder).glob(f"*{self.mark}*"))
        # Only those of the size that an attempt makes: other programs of this machine have segments, too.
        rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        found["segments"] = sorted(row[1] for row in rows if row[3] == str(SEGMENT_BYTES))
        status = Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()
        alive = "alive" if status[0] in "RSD" else status[0]  # not stopped, not a corpse
        found["victim"] = (alive, status[16], resource.prlimit(self.victim.pid, resource.RLIMIT_NOFILE))
        return found


def _trace(path: Path) -> Any:
    seen = path.lstat()
    content = ""
    flags = 0
    if stat.S_ISREG(seen.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        with path.open("rb") as file:
            try:
                flags = int.from_bytes(fcntl.ioctl(file, 0x80086601, bytes(8))[:4], "little")
            except OSError:
                flags = -1
    elif stat.S_ISLNK(seen.st_mode):
        content = os.readlink(path)
    extended = tuple(os.listxattr(path, follow_symlinks=False))
    identity = (seen.st_mode, seen.st_uid, seen.st_gid, seen.st_nlink, seen.st_size, seen.st_mtime_ns, seen.st_ino)
    return (*identity, content, flags, extended)
