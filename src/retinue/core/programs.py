"""The only place that starts programs, and the identity of processes.

`prepare` takes a clearance, which names who approved the start of the program, and gets the sandbox for it from the
caller. The other functions start a prepared program. No other module may start a program (`tests/test_programs.py`), so
no program starts without a clearance.

A process id alone does not identify a process: ids are reused within minutes on a busy machine. An owner is a process
id with its start time, the boot of its host, and its namespace of process ids. If its process table cannot be read
(another host, another container), its heartbeat decides. `lock_file` locks between processes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from retinue.errors import StateError

if TYPE_CHECKING:
    from asyncio.subprocess import Process


Clearance = Literal["own", "person", "consent", "rule", "mode", "inside"]
"""Who approved the start of a program. The clearance decides what the program can access.

`own`: Retinue itself: a program and arguments that no project chooses, with settings that start nothing of a project.
`person`: this user typed or approved the command, or wrote it into a setting of their own.
`consent`: a file of a project names it, and the user has consented to the content of that file.
`rule`: an allow rule. `mode`: the permission mode.
`inside`: nobody. It starts inside a sandbox, or not at all."""


class Confinement(Protocol):
    """A sandbox that programs start in."""

    def wrap(self, argv: Sequence[str], cwd: Path) -> list[str]:
        """Return the words that start the program inside the sandbox."""
        ...

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for such a program: without secrets, and with a scratch folder for temporary files."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether such a program can make no lasting change and has no network."""
        ...

    def explain(self, shown: str, code: int | None) -> str:
        """Return the action that the sandbox prevented, judged by the output of the program; "" if there was none."""
        ...

    def close(self) -> None:
        """Remove the scratch folder. No program of the run is running any more."""
        ...


Confine = Callable[[Clearance], Confinement | None]
"""Returns the sandbox for a clearance; None if a program of that clearance needs none."""


HEARTBEAT_SECONDS = 15.0
SILENCE_SECONDS = 90.0
"""An owner on another host without a heartbeat for this long is gone."""
SHARED_HEARTBEAT_SECONDS = 0.75
SHARED_SILENCE_SECONDS = 3.0
"""The same in a log on a database server, where other machines wait to continue its runs."""


class Owner(Struct, frozen=True):
    """A process that owns runs. `started` and `boot` are opaque and only compared."""

    id: str
    pid: int
    started: str
    host: str
    boot: str
    space: str
    heartbeat: float
    shared: bool = False
    """Whether several machines know this owner by its heartbeat only. Without a heartbeat it is gone, even if its
    process can be seen here, because the other machines have already decided so."""

    def alive(self, here: Owner, now: float | None = None) -> bool:
        """Return whether the process of this owner still exists, as seen from the process `here`."""
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
    """Return a new owner for this process. Each opened log has one."""
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
    """Return when process `pid` started, in a format of this system; None if it is not running. A zombie is not
    running."""
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


@contextmanager
def locked_file(path: Path, seconds: float | None = None) -> Iterator[int | None]:
    """Hold the lock of a file, which is created if it is missing. Yield its descriptor, or None if another process
    still has the lock after `seconds`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor if lock_file(descriptor, seconds) else None
    finally:
        os.close(descriptor)


PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
TimeoutExpired = subprocess.TimeoutExpired
CompletedProcess = subprocess.CompletedProcess
Popen = subprocess.Popen


class NotConfinedError(OSError):
    """The program did not start, because the sandbox that its clearance requires could not be made."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)


class PreparedProgram(Struct, frozen=True):
    """A program that may start. Only `prepare` makes one."""

    argv: tuple[str, ...]
    cwd: Path | None
    environment: Mapping[str, str]
    clearance: Clearance


def prepare(
    argv: Sequence[str],
    *,
    clearance: Clearance,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    confine: Confine | None = None,
) -> PreparedProgram:
    """Return the program inside the sandbox for its clearance. Blocks while a sandbox is made. Raise NotConfinedError
    if it cannot be made, and for the clearance `inside` if there is no sandbox."""
    try:
        sandbox = confine(clearance) if confine is not None else None
        if sandbox is not None:
            wrapped = sandbox.wrap(argv, cwd or Path("/"))
            return PreparedProgram(tuple(wrapped), cwd, sandbox.environment(environment), clearance)
    except (OSError, ValueError, StateError) as error:
        raise NotConfinedError(str(error)) from error
    if clearance == "inside":
        raise NotConfinedError("Nobody approved this program, and there is no sandbox to start it in.")
    return PreparedProgram(tuple(argv), cwd, dict(environment), clearance)


def run(
    program: PreparedProgram,
    *,
    stdin_bytes: bytes | None = None,
    seconds: float | None = None,
    output: Literal["separate", "merged", "inherited"] = "separate",
) -> CompletedProcess[bytes]:
    """Run a program to its end. `inherited` leaves the terminal to it. Raise OSError, and TimeoutExpired after
    `seconds`, when it has been killed."""
    captured = None if output == "inherited" else PIPE
    stdin = None if output == "inherited" or stdin_bytes is not None else DEVNULL
    return subprocess.run(  # noqa: S603 - cleared by `prepare`
        program.argv,
        cwd=program.cwd,
        env=program.environment,
        stdin=stdin,
        input=stdin_bytes,
        stdout=captured,
        stderr=STDOUT if output == "merged" else captured,
        timeout=seconds,
        check=False,
    )


def open_program(
    program: PreparedProgram, *, stdin: int = DEVNULL, stdout: int | IO[bytes] = PIPE, stderr: int | None = None
) -> Popen[bytes]:
    """Start a program in a new session. The caller must end it."""
    return subprocess.Popen(  # noqa: S603 - cleared by `prepare`
        program.argv,
        cwd=program.cwd,
        env=program.environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


async def spawn(
    program: PreparedProgram, *, launcher: Sequence[str] = (), stdin: int = PIPE, descriptors: Sequence[int] = ()
) -> Process:
    """Start a program with pipes, in a new session. `launcher` are words of Retinue itself that start it, outside of
    its sandbox; `descriptors` are open files that they get."""
    return await asyncio.create_subprocess_exec(
        *launcher,
        *program.argv,
        stdin=stdin,
        stdout=PIPE,
        stderr=PIPE,
        cwd=program.cwd,
        env=program.environment,
        start_new_session=os.name != "nt",
        pass_fds=tuple(descriptors),
    )


async def attach(
    program: PreparedProgram,
    protocol: asyncio.SubprocessProtocol,
    *,
    stdin: int = DEVNULL,
    merge: bool = True,
    descriptors: Sequence[int] = (),
) -> asyncio.SubprocessTransport:
    """Start a program in a new session and pass its output to `protocol`."""
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        lambda: protocol,
        *program.argv,
        stdin=stdin,
        stdout=PIPE,
        stderr=STDOUT if merge else PIPE,
        cwd=program.cwd,
        env=program.environment,
        start_new_session=True,
        pass_fds=tuple(descriptors),
    )
    return transport
