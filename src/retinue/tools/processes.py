"""Programs that tools start, a command or a server, and every process that one of them started.

A command leads its own session. Its members are found by session and process group, by a
marker in their environment (which a daemon that made a session of its own still carries), and
as children of a member, without trusting any of them. A process that hides from all three (an emptied environment in a
new session whose parent is gone) is held only by the sandbox. A command has bounded time, and its output is streamed.
A server is watched by the launcher; its output beside the protocol is kept for people, bounded, without secrets.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.programs import DEVNULL, PreparedProgram, attach, prepare, run, spawn
from retinue.settings.places import private_folder

MARK = "RETINUE_RUN_CALL"

_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_NEAR_PIDS = 64
_YOUNG_SECONDS = 30.0
"""After this time process ids may have been reused, so all processes are checked."""
_MAX_KILLS = 50


class ProcessEntry(Struct, frozen=True):
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
        """Return the live processes of the tree, including the leader."""
        if sys.platform == "linux":
            return self._from_proc()
        if hasattr(os, "killpg"):
            return self._from_ps()
        return ()

    async def end(self, grace: float) -> None:
        """Terminate all members, and kill those that run after `grace` seconds. If cancelled, kill immediately."""
        asked: set[int] = set()
        give_up = time.monotonic() + grace
        try:
            while alive := self.members():
                self._send(tuple(set(alive) - asked), signal.SIGTERM)
                asked.update(alive)
                # Members that ignore the signal are killed below.
                if time.monotonic() > give_up:
                    break
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill all members repeatedly until none is found, because a member may fork while it is being killed."""
        for _ in range(_MAX_KILLS):
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

        def is_member(entry: ProcessEntry) -> bool:
            return self.pid in (entry.pid, entry.group, entry.session) or self.mark in _environment(entry.pid)

        return _with_children({entry.pid for entry in processes if is_member(entry)}, processes)

    def _candidates(self) -> list[int]:
        """Numbers are given in rising order, so members of a young tree lie between the leader
        and the newest process. Looking only there keeps the check at microseconds."""
        newest = _newest_pid()
        young = time.monotonic() - self._since < _YOUNG_SECONDS
        # The common case: a short command, and few processes since.
        if young and self.pid <= newest <= self.pid + _NEAR_PIDS:
            return list(range(self.pid, newest + 1))
        everyone = _all_pids()
        if young and newest >= self.pid:
            return [pid for pid in everyone if pid >= self.pid]
        return everyone

    def _from_ps(self) -> tuple[int, ...]:
        with suppress(PermissionError):
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return ()
        processes = _ps()
        return _with_children({entry.pid for entry in processes if self.pid in (entry.pid, entry.group)}, processes)


def _with_children(ours: set[int], processes: list[ProcessEntry]) -> tuple[int, ...]:
    """Return `ours` and all their descendants, sorted."""
    while children := {entry.pid for entry in processes if entry.parent in ours} - ours:
        ours |= children
    return tuple(sorted(ours))


def _all_pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _newest_pid() -> int:
    """Return the newest process id, or 0 if the system does not state it."""
    try:
        return int((_PROC / "loadavg").read_text().rsplit(None, 1)[-1])
    except (OSError, ValueError, IndexError):
        return 0


def describe(pid: int) -> str:
    """Return the shortened command line of a process, for notes about stopped processes."""
    try:
        line = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        line = ""
    return line[:60] or f"process {pid}"


def kill_marked(mark: str) -> None:
    """Kill a command whose process id was never learned, by its `mark`. On Linux."""
    variable = mark.encode()
    if sys.platform != "linux":
        return
    for _ in range(_MAX_KILLS):
        marked = tuple(pid for pid in _all_pids() if variable in _environment(pid) and _stat(pid) is not None)
        if not marked:
            return
        ProcessTree._send(marked, signal.SIGKILL)
        time.sleep(0.001)


def processes_by_run() -> dict[int, frozenset[str]]:
    """Return every live process with a marker, and the run ids that it names."""
    if sys.platform != "linux":
        return {}
    start = f"{MARK}=".encode()
    runs_of: dict[int, frozenset[str]] = {}
    for pid in _all_pids():
        variables = [variable for variable in _environment(pid).split(b"\0") if variable.startswith(start)]
        marks = ",".join(variable.removeprefix(start).decode("utf-8", "replace") for variable in variables)
        runs = frozenset(mark.rpartition(".")[0] for mark in marks.split(",")) - {""}
        if runs and _stat(pid) is not None:
            runs_of[pid] = runs
    return runs_of


def _stat(pid: int) -> ProcessEntry | None:
    """Return the entry of a process, or None if it has ended or waits to be reaped."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return None
    return ProcessEntry(pid, int(fields[1]), int(fields[2]), int(fields[3]))


def _environment(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _ps() -> list[ProcessEntry]:
    """Return all live processes on systems without /proc. Their sessions are unknown."""
    words = ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat="]
    listing = run(prepare(words, clearance="own", environment=os.environ), seconds=5).stdout.decode()
    lines = [line.split() for line in listing.splitlines()]
    return [
        ProcessEntry(int(line[0]), int(line[1]), int(line[2]), 0)
        for line in lines
        if len(line) >= 4 and not line[3].startswith("Z")
    ]


Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result], stop: Event | None = None) -> Result:
    """Run `work` in a thread. A cancelled caller still waits for its end, so that changes of
    files are complete. Work that may be long checks `stop`."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await wait_until_over(task)
        raise


async def wait_until_over(task: Awaitable[Any]) -> None:
    """Wait until `task` is over, however often the waiter is cancelled meanwhile."""
    future = asyncio.ensure_future(task)
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()


def own_variables(*names: str) -> dict[str, str]:
    """Return those of these variables that are set in this process."""
    return {name: os.environ[name] for name in names if name in os.environ}


DRAIN_SECONDS = 0.2
"""The time that late output may take after the program itself has ended."""
GRACE_SECONDS = 2.0
_REAP_SECONDS = 5.0


class ProcessEnd(Struct, frozen=True):
    """The end of a program. `code` is negative for a signal, as in `subprocess`, and None if the program could not be
    reaped. `stopped` names processes that it left running."""

    code: int | None
    timed_out: bool = False
    stopped: tuple[str, ...] = ()


Receive = Callable[[int, bytes], None]
"""Receives the number of the stream (1 or 2) and a piece of its output."""


async def run_program(
    program: PreparedProgram,
    *,
    receive: Receive,
    seconds: float | None,
    merge: bool = True,
    alone: bool = False,
    owner: str = "",
    stdin: int = DEVNULL,
    descriptors: Sequence[int] = (),
) -> ProcessEnd:
    """Run `program` to its end. When the time is up, or the caller is cancelled, the whole tree
    is ended first. Output of the program is passed on as it comes; processes it leaves behind
    neither hold the call nor survive it (`alone` says it starts none, which saves looking).
    `owner` (a run id) goes into the marker by which a later process can find what a crash
    left. `stdin` is a file to read from, `descriptors` what it gets open. Raise OSError when it cannot be started."""
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    mark = f"{owner}.{secrets.token_hex(8)}"
    # A Retinue that runs inside another one keeps the marks of both.
    marks = ",".join(filter(None, (program.environment.get(MARK), mark)))
    program = replace(program, environment={**program.environment, MARK: marks})
    watcher = _Watcher(receive)

    async def work() -> ProcessEnd:
        start = attach(program, watcher, stdin=stdin, merge=merge, descriptors=descriptors)
        transport = await _started(asyncio.ensure_future(start), mark)
        tree = ProcessTree(transport.get_pid(), mark)
        over = False
        try:
            await asyncio.wait({watcher.exited, cancelled}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if watcher.exited.done():
                stopped = await _clear(tree, watcher, alone)
                over = True
                return ProcessEnd(transport.get_returncode(), stopped=stopped)
            await tree.end(GRACE_SECONDS)
            over = True
            await asyncio.wait({watcher.exited}, timeout=_REAP_SECONDS)
            await asyncio.wait({watcher.drained}, timeout=DRAIN_SECONDS)
            return ProcessEnd(transport.get_returncode(), timed_out=not cancelled.done())
        finally:
            # This task itself was cancelled, as happens when the loop is torn down.
            if not over:
                tree.kill()
            # Pipes that daemons hold open would keep the event loop from ending.
            transport.close()

    # A task of its own that is never cancelled: whatever happens to the caller, the
    # steps from starting the program to having ended its tree run in order.
    task = asyncio.ensure_future(work())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not cancelled.done():
            cancelled.set_result(None)
        await wait_until_over(task)
        raise


async def _started(starting: asyncio.Future[Result], mark: str) -> Result:
    """Wait for the start of the program that `mark` names."""
    try:
        await asyncio.wait({starting})
    except asyncio.CancelledError:
        # The loop is torn down while the program starts. It may be at work already, and asyncio
        # would wait for pipes that are never opened, unless it is cancelled again.
        while not starting.done():
            starting.cancel()
            await asyncio.sleep(0)
        kill_marked(mark)
        raise
    return starting.result()


async def _clear(tree: ProcessTree, watcher: _Watcher, alone: bool) -> tuple[str, ...]:
    """Wait for late output of an ended program, then end what it left behind."""
    if alone:
        await asyncio.wait({watcher.drained}, timeout=DRAIN_SECONDS)
        return ()
    survivors = tree.members()
    if not survivors and watcher.drained.done():
        return ()
    if survivors:
        # A program that ends right after its parent, such as `tee` in a pipe, is not one that was left behind.
        await asyncio.sleep(DRAIN_SECONDS)
    else:
        await asyncio.wait({watcher.drained}, timeout=DRAIN_SECONDS)
    survivors = tree.members()
    names = tuple(dict.fromkeys(map(describe, survivors)))
    if survivors:
        await tree.end(GRACE_SECONDS)
    return names


class _Watcher(asyncio.SubprocessProtocol):
    """`exited` is set when the program itself ends, even if others still hold its pipes; `drained` when
    all pipes are closed. (A stream reader would wait for the pipes, that is, for daemons.)"""

    def __init__(self, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self._receive = receive
        self._open = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._open = sum(transport.get_pipe_transport(number) is not None for number in (1, 2))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._receive(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open -= 1
        if self._open <= 0 and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)


FILE_BYTES = 1024 * 1024
"""The most bytes in one file. At most one older file is retained."""
CONNECTION_BYTES = 4 * FILE_BYTES
"""The most bytes that one connection may write, so that a server with too much output does not wear out the disk."""
_TAIL_CHARACTERS = 2_000
_MAX_LINE_BYTES = 4_000


class ErrorLog:
    """A log of a server's error output. It never raises, because a full disk must not stop a server. `tail` is the
    newest output."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self.path = path
        self._redact = redact
        self._rest = b""
        self._written = 0
        self.tail = ""

    def feed(self, data: bytes, mark: str = "") -> None:
        """Receive a piece of output, and write its complete lines."""
        if self._written > CONNECTION_BYTES:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self.note(line[:_MAX_LINE_BYTES].decode("utf-8", "replace").rstrip(), mark)

    def end(self) -> None:
        if self._rest:
            self.feed(b"\n")

    def note(self, line: str, mark: str = "") -> None:
        if not line or self._written > CONNECTION_BYTES:
            return
        text = f"{mark}{self._redact(line)}\n"
        self.tail = (self.tail + text)[-_TAIL_CHARACTERS:]
        self._written += len(text)
        if self._written > CONNECTION_BYTES:
            text += "[retinue] the server says too much: the rest is dropped\n"
        with suppress(OSError):
            self._write(text.encode("utf-8", "replace"))

    def _write(self, data: bytes) -> None:
        private_folder(self.path.parent)
        if self.path.is_file() and self.path.stat().st_size > FILE_BYTES:
            self.path.replace(self.path.with_suffix(".log.1"))
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)


_LAUNCHER = Path(__file__).with_name("server_launcher.py")
_ASKED_SECONDS = 1.0
_ENDED_SECONDS = 5.0


class CannotStartError(Exception):
    """Completes "the server … cannot be used: …"."""


class ServerProcess:
    """A server program, made by `launch`. `end` is bounded in time and safe to repeat. `cut` needs no event loop."""

    def __init__(self, process: Process, lifeline: int | None, log: ErrorLog) -> None:
        self._process = process
        self._lifeline = lifeline
        self._log = log
        self._stderr = asyncio.create_task(self._listen())

    @classmethod
    async def launch(cls, program: PreparedProgram, log: ErrorLog) -> ServerProcess:
        """A program that is known to be there, watched. Raise CannotStartError."""
        try:
            if os.name == "nt" or not sys.executable or getattr(sys, "frozen", False):  # no interpreter to watch with
                return cls(await spawn(program), None, log)
            ours, lifeline = os.pipe()
            try:
                launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(ours)]
                process = await spawn(program, launcher=launcher, descriptors=(ours,))
            except BaseException:
                os.close(lifeline)
                raise
            finally:
                os.close(ours)
        except (OSError, ValueError) as error:
            raise CannotStartError(f"{program.argv[0]} cannot be started: {error}") from error
        return cls(process, lifeline, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.returncode

    async def read(self) -> bytes:
        """Return the next piece of output; empty at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(256 * 1024)

    async def write(self, data: bytes) -> None:
        """Send data. Raise OSError if the server has closed its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    def cut(self) -> None:
        """End all processes that the server started, even if this process dies."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        elif self._process.returncode is None:
            self._kill()

    async def end(self) -> None:
        """Close the server's input, which asks it to exit by the protocol, and end it if it does not."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            if not await self._gone(_ASKED_SECONDS):
                self.cut()
                if not await self._gone(_ENDED_SECONDS):
                    self._kill()
                    await self._gone(1.0)
        finally:
            self.cut()
            self._stderr.cancel()
            self._log.end()
            transport = getattr(self._process, "_transport", None)
            if transport is not None:  # or a pipe that a daemon still holds keeps it open
                transport.close()

    def _kill(self) -> None:
        """The leader of the session, and its group where there are groups."""
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    async def _gone(self, seconds: float) -> bool:
        """Return whether it ended in time. `Process.wait` would also wait for its pipes."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._process.returncode is None:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.005)
        return True

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(64 * 1024):
            self._log.feed(data)
