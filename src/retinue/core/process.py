"""Which process this is, whether another one is alive, and locks between processes.

A process id alone does not identify a process: ids are reused within minutes on a busy machine. An
owner is the process id with its start time, on a boot of a host, in one namespace of process ids.
Where its process table cannot be seen (another host, another container), its heartbeat decides.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from msgspec import Struct

HEARTBEAT_SECONDS = 15.0
SILENCE_SECONDS = 90.0
"""An owner on another host that was silent for this long is gone."""
SHARED_HEARTBEAT_SECONDS = 0.75
SHARED_SILENCE_SECONDS = 3.0
"""The same in a log on a database server, where others wait to go on with its runs."""


class Owner(Struct, frozen=True):
    """`started` and `boot` are opaque: they are only ever compared."""

    id: str
    pid: int
    started: str
    host: str
    boot: str
    space: str
    heartbeat: float
    shared: bool = False
    """Whether several machines know this owner by its heartbeat only: then silence means that it is gone, even where
    its process can be seen, because the others have judged so."""

    def alive(self, here: Owner, now: float | None = None) -> bool:
        """Whether this owner's process still exists, as seen from the process `here`."""
        if self.id == here.id:
            return True
        if now is None:
            now = time.time()
        if self.shared:
            near = (self.host, self.boot, self.space) == (here.host, here.boot, here.space)
            return now - self.heartbeat < SHARED_SILENCE_SECONDS and (not near or start_of(self.pid) == self.started)
        if self.host == here.host and self.boot != here.boot:
            return False
        if (self.host, self.space) == (here.host, here.space):
            return bool(self.started) and start_of(self.pid) == self.started
        return now - self.heartbeat < SILENCE_SECONDS


def this_process() -> Owner:
    """A new owner for the calling process; one per opened log."""
    return Owner(
        id=os.urandom(12).hex(),
        pid=os.getpid(),
        started=start_of(os.getpid()) or "",
        host=_host(),
        boot=_boot(),
        space=_space(),
        heartbeat=time.time(),
    )


def start_of(pid: int) -> str | None:
    """When process `pid` started, in a form of this system; None when it is not running. A
    process that died and was not yet collected by its parent is not running."""
    if sys.platform == "linux":
        try:
            line = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return None
        fields = line.rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    if sys.platform == "win32":
        return _start_on_windows(pid)
    return _start_by_ps(pid)


def _start_by_ps(pid: int) -> str | None:
    from retinue.core.programs import TimeoutExpired, prepare, run

    words = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        listing = run(prepare(words, clearance="own", environment={"LC_ALL": "C"}), seconds=5)
    except (OSError, TimeoutExpired):
        return None
    state, _, started = listing.stdout.decode().strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def _start_on_windows(pid: int) -> str | None:
    import ctypes

    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]  # exists on Windows only
    query_limited_information, still_active = 0x1000, 259
    handle = kernel.OpenProcess(query_limited_information, False, pid)
    if not handle:
        return None
    try:
        code, times = ctypes.c_ulong(), [ctypes.c_ulonglong() for _ in range(4)]
        kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.GetProcessTimes(handle, *[ctypes.byref(moment) for moment in times])
        return str(times[0].value) if code.value == still_active else None
    finally:
        kernel.CloseHandle(handle)


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def lock_file(descriptor: int, seconds: float | None = None) -> bool:
    """Lock an open file or folder against other processes, and return whether this process has the lock.

    Without `seconds` it waits; with 0 it tries once. Closing the descriptor releases the lock. Windows
    has no such lock: there it always returns True.
    """
    try:
        import fcntl
    except ImportError:
        return True
    if seconds is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    give_up = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            # flock has no time limit of its own.
            time.sleep(0.002)
