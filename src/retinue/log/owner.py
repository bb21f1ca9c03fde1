"""Which process runs a run, whether it is alive, and how another takes the run over.

A process id alone does not identify a process: ids are reused within minutes on a busy machine. An
owner is the process id with its start time, on a boot of a host, in one namespace of process ids.
Where its process table cannot be seen (another host, another container), its heartbeat decides.

Registering and taking over run inside a transaction of the caller, so of two processes that want the
same run exactly one gets it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.delegation import LIVE
from retinue.errors import StateError, UnknownRunError
from retinue.log.rows import SELECT_RUN

if TYPE_CHECKING:
    import sqlite3


HEARTBEAT_SECONDS = 15.0
SILENCE_SECONDS = 90.0
"""An owner on another host that was silent for this long is gone."""


class Owner(Struct, frozen=True):
    """`started` and `boot` are opaque: they are only ever compared."""

    id: str
    pid: int
    started: str
    host: str
    boot: str
    space: str
    heartbeat: float

    def alive(self, here: Owner, now: float | None = None) -> bool:
        """Whether this owner's process still exists, as seen from the process `here`."""
        if self.id == here.id:
            return True
        if self.host == here.host and self.boot != here.boot:
            return False
        if (self.host, self.space) == (here.host, here.space):
            return bool(self.started) and start_of(self.pid) == self.started
        return (time.time() if now is None else now) - self.heartbeat < SILENCE_SECONDS


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
    import subprocess

    try:
        found = subprocess.run(  # noqa: S603  (a fixed program and a number)
            ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            env={"LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    state, _, started = found.stdout.strip().partition(" ")
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


_LIVE = ", ".join(f"'{state}'" for state in sorted(LIVE))


def register(connection: sqlite3.Connection, owner: Owner) -> None:
    connection.execute(
        "INSERT INTO owners (id, pid, started, host, boot, space, heartbeat) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner.id, owner.pid, owner.started, owner.host, owner.boot, owner.space, owner.heartbeat),
    )


def owners(connection: sqlite3.Connection) -> dict[str, Owner]:
    rows = connection.execute("SELECT id, pid, started, host, boot, space, heartbeat FROM owners")
    return {row[0]: Owner(*row) for row in rows}


def recover(connection: sqlite3.Connection, here: Owner) -> bool:
    """Mark the runs of processes that are gone as interrupted. Takes the write lock only when
    there is something to mark. Return whether any process was gone."""
    dead = [owner for owner in owners(connection).values() if not owner.alive(here)]
    if not dead:
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        for owner in dead:
            release(connection, owner)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True


def release(connection: sqlite3.Connection, owner: Owner) -> None:
    """Remove an owner: what it still ran is interrupted, and it can write no more."""
    connection.execute(
        f"UPDATE runs SET state='interrupted', owner=NULL WHERE owner=? AND state IN ({_LIVE})",  # noqa: S608
        (owner.id,),
    )
    connection.execute("DELETE FROM owners WHERE id=?", (owner.id,))


def take_over(connection: sqlite3.Connection, run_id: str, here: Owner) -> tuple[sqlite3.Row, int]:
    """Make `here` the owner of an ended or interrupted run and return its row as it was before,
    with the number of its last event. Raise StateError while another process runs it."""
    import sqlite3

    cursor = connection.execute(f"{SELECT_RUN} WHERE id=?", (run_id,))
    cursor.row_factory = sqlite3.Row
    row = cursor.fetchone()
    if row is None:
        raise UnknownRunError(f"There is no run {run_id} in this log.", remedy="See: retinue runs list")
    owner = owners(connection).get(row["owner"]) if row["state"] in LIVE else None
    if owner is not None:
        if owner.alive(here):
            where = f"process {owner.pid}" + ("" if owner.host == here.host else f" on {owner.host}")
            raise StateError(
                f"Run {run_id} is being run by {where}.",
                remedy="Watch it with: retinue runs tail " + run_id,
            )
        release(connection, owner)
    connection.execute("UPDATE runs SET state='running', owner=? WHERE id=?", (here.id, run_id))
    last = connection.execute("SELECT max(seq) FROM events WHERE run_id=?", (run_id,)).fetchone()[0]
    return row, int(last or 0)
