"""Every process that one command started, found and ended without trusting any of them.

A command leads its own session. Its members are found by session and process group, by a
marker in their environment (which a daemon that made a session of its own still carries), and
as children of a member. What hides from all three (an emptied environment in a new session
whose parent is gone) is only held by the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from retinue.core.programs import prepare, run

MARK = "RETINUE_RUN_CALL"

_PROC = Path("/proc")
_POLL = 0.02
_NEAR = 64
_LONG = 30.0
"""Seconds after which process ids may have been reused, so that all processes are looked at."""
_PASSES = 50


class Process(Struct, frozen=True):
    pid: int
    parent: int
    group: int
    session: int


class ProcessTree:
    """The processes of the command that `pid` leads and `mark` names."""

    def __init__(self, pid: int, mark: str) -> None:
        self.pid = pid
        self.mark = mark.encode()
        self._since = time.monotonic()

    def members(self) -> tuple[int, ...]:
        """Live processes of the tree, the leader included while it lives."""
        if sys.platform == "linux":
            return self._from_proc()
        if hasattr(os, "killpg"):
            return self._from_ps()
        return ()

    async def end(self, grace: float) -> None:
        """Ask all members to stop, give them `grace` seconds, then kill what is left.
        Kills at once when cancelled."""
        asked: set[int] = set()
        give_up = time.monotonic() + grace
        try:
            while alive := self.members():
                self._send(tuple(set(alive) - asked), signal.SIGTERM)
                asked.update(alive)
                # Members that ignore the signal are killed below.
                if time.monotonic() > give_up:
                    break
                await asyncio.sleep(_POLL)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill until nothing is found: a member may fork while it is being killed."""
        for _ in range(_PASSES):
            alive = self.members()
            if not alive:
                return
            # The whole group at once, so that no fork slips through.
            if hasattr(os, "killpg"):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._send(alive, getattr(signal, "SIGKILL", signal.SIGTERM))
            time.sleep(0.001)

    @staticmethod
    def _send(pids: tuple[int, ...], number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                if number == signal.SIGTERM and hasattr(signal, "SIGCONT"):
                    # A stopped process cannot act on the first.
                    os.kill(pid, signal.SIGCONT)

    def _from_proc(self) -> tuple[int, ...]:
        processes = list(filter(None, map(_stat, self._candidates())))
        ours: set[int] = set()
        for found in processes:
            if self.pid in (found.pid, found.group, found.session) or self.mark in _environment(found.pid):
                ours.add(found.pid)
        return _with_children(ours, processes)

    def _candidates(self) -> list[int]:
        """Numbers are given in rising order, so members of a young tree lie between the leader
        and the newest process. Looking only there keeps the check at microseconds."""
        newest = _newest_pid()
        young = time.monotonic() - self._since < _LONG
        # The common case: a short command, and few processes since.
        if young and self.pid <= newest <= self.pid + _NEAR:
            return list(range(self.pid, newest + 1))
        everyone = _all_pids()
        if young and newest >= self.pid:
            return [pid for pid in everyone if pid >= self.pid]
        return everyone

    def _from_ps(self) -> tuple[int, ...]:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return ()
        except PermissionError:
            pass
        processes = _ps()
        ours = {found.pid for found in processes if self.pid in (found.pid, found.group)}
        return _with_children(ours, processes)


def _with_children(ours: set[int], processes: list[Process]) -> tuple[int, ...]:
    """Return `ours` with everything that they have started, in order."""
    grown = True
    while grown:
        before = len(ours)
        for found in processes:
            if found.parent in ours:
                ours.add(found.pid)
        grown = len(ours) > before
    return tuple(sorted(ours))


def _all_pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _newest_pid() -> int:
    """Return the last number given, or 0 where the system does not say."""
    try:
        return int((_PROC / "loadavg").read_text().rsplit(None, 1)[-1])
    except (OSError, ValueError, IndexError):
        return 0


def describe(pid: int) -> str:
    """Return the command line of a process, short, for telling which one was stopped."""
    try:
        line = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        line = ""
    return line[:60] or f"process {pid}"


def kill_marked(mark: str) -> None:
    """Kill a command whose process id was never learned, by its `mark`. On Linux."""
    wanted = mark.encode()
    if sys.platform != "linux":
        return
    for _ in range(_PASSES):
        found = tuple(pid for pid in _all_pids() if wanted in _environment(pid) and _stat(pid) is not None)
        if not found:
            return
        ProcessTree._send(found, signal.SIGKILL)
        time.sleep(0.001)


def processes_by_run() -> dict[int, frozenset[str]]:
    """Return every live process that carries a marker, with the run ids it names. One look at all."""
    if sys.platform != "linux":
        return {}
    found: dict[int, frozenset[str]] = {}
    for pid in _all_pids():
        said = ",".join(entry.decode("utf-8", "replace").partition("=")[2] for entry in _marks(pid))
        runs = frozenset(mark.rpartition(".")[0] for mark in said.split(",")) - {""}
        if runs and _stat(pid) is not None:
            found[pid] = runs
    return found


def _marks(pid: int) -> list[bytes]:
    return [entry for entry in _environment(pid).split(b"\0") if entry.startswith(MARK.encode() + b"=")]


def _stat(pid: int) -> Process | None:
    """None for what is gone or only waits to be reaped."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]))


def _environment(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _ps() -> list[Process]:
    """Return all live processes where there is no /proc. Sessions are not listed there."""
    words = ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat="]
    listing = run(prepare(words, clearance="own", environment=os.environ), seconds=5).stdout.decode()
    found: list[Process] = []
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) >= 4 and not fields[3].startswith("Z"):
            found.append(Process(int(fields[0]), int(fields[1]), int(fields[2]), 0))
    return found
