"""Runs one server, and ends its remaining processes before it exits.

A program of its own, started as `python -I -S server_launcher.py LIFELINE COMMAND...`. Descriptor
LIFELINE is the end of a pipe whose other end only Retinue holds. When that closes, because
Retinue wants the server gone or was itself killed with -9, everything the server started is
ended. When the server ends by itself, so does what it left behind. The server has our standard
streams directly: nothing is copied.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Prctl = Callable[[int, int], object]

GRACE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    prctl = _prctl()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a server orphans becomes our child: it can be found
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    me = os.getpid()
    server = os.fork()
    if server == 0:
        _become(command, lifeline, prctl, me)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # or the server's own ends of the pipes would not be the last ones
    os.dup2(null, 1)
    status = _watch(server, lifeline, woken)
    _end(server)
    return status


def _become(command: list[str], lifeline: int, prctl: Prctl, parent: int) -> None:
    """Run the server in the forked child. Never return."""
    try:
        os.setpgid(0, 0)
        os.close(lifeline)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606 - that is the point
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _watch(server: int, lifeline: int, woken: int) -> int:
    """Return the server's exit status, or 0 when it is to be ended."""
    while True:
        status = _reap(server)
        if status is not None:
            return status
        ready, _, _ = select.select([lifeline, woken], [], [])
        if woken in ready:
            signals = os.read(woken, 64)
            if any(number != signal.SIGCHLD for number in signals):
                return 0
        if lifeline in ready and not os.read(lifeline, 64):
            return 0


def _reap(server: int) -> int | None:
    exit_code = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == server:
                code = os.waitstatus_to_exitcode(status)
                exit_code = code if code >= 0 else 128 - code
    return exit_code


def _end(server: int) -> None:
    """Terminate the processes of the server, and kill those that do not end in time."""
    give_up = time.monotonic() + GRACE_SECONDS
    asked: set[int] = set()
    while time.monotonic() < give_up:
        _reap(server)
        alive = _descendants(server)
        if not alive:
            return
        for pid in alive - asked:
            _send(pid, signal.SIGTERM)
            _send(pid, signal.SIGCONT)
        asked |= alive
        time.sleep(0.01)
    for _ in range(500):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(server, signal.SIGKILL)
        alive = _descendants(server)
        for pid in alive:
            _send(pid, signal.SIGKILL)
        _reap(server)
        if not alive:
            return
        time.sleep(0.005)


def _descendants(server: int) -> set[int]:
    """Return all live descendants of this process or, where the system does not list them, the server's group."""
    if not os.path.isdir("/proc/self"):  # noqa: PTH112 - pathlib would double the start-up time
        try:
            os.killpg(server, 0)
        except (ProcessLookupError, PermissionError):
            return set()
        return {server}
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                fields = stat.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    parents[int(name)] = int(fields[1])
    ours = {os.getpid()}
    while True:
        descendants = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not descendants:
            return ours - {os.getpid()}
        ours |= descendants


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl() -> Prctl:
    """Return Linux's prctl. Other systems rely on the lifeline alone."""
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):
            import ctypes

            prctl: Prctl = ctypes.CDLL(None).prctl
            return prctl
    return lambda option, value: None


if __name__ == "__main__":
    sys.exit(main())
