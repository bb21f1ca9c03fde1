"""The process of a server: in its own session, watched by the launcher, never left behind.

What it prints beside the protocol is kept for people, bounded, without secrets.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from retinue.settings.places import private_folder

FILE_BYTES = 1024 * 1024
"""One file and its predecessor at most."""
CONNECTION_BYTES = 4 * FILE_BYTES
"""What one connection may write in all: a server that floods does not wear out the disk."""
_TAIL = 2_000
_LINE = 4_000


class ErrorLog:
    """Never raises: a disk that is full must not stop a server. `tail` is the newest of it."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self.path = path
        self._redact = redact
        self._rest = b""
        self._written = 0
        self.tail = ""

    def feed(self, data: bytes, mark: str = "") -> None:
        """Take a piece of output; whole lines are written."""
        if self._written > CONNECTION_BYTES:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self.note(line[:_LINE].decode("utf-8", "replace").rstrip(), mark)

    def end(self) -> None:
        if self._rest:
            self.feed(b"\n")

    def note(self, line: str, mark: str = "") -> None:
        if not line or self._written > CONNECTION_BYTES:
            return
        text = f"{mark}{self._redact(line)}\n"
        self.tail = (self.tail + text)[-_TAIL:]
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
    """Made by `launch`. `end` is bounded in time and safe to repeat; `cut` needs no event loop."""

    def __init__(self, process: Process, lifeline: int | None, log: ErrorLog) -> None:
        self._process = process
        self._lifeline = lifeline
        self._log = log
        self._stderr = asyncio.create_task(self._listen())

    @classmethod
    async def launch(cls, argv: list[str], folder: Path, env: dict[str, str], log: ErrorLog) -> ServerProcess:
        """A program that is known to be there, watched. Raise CannotStartError."""
        command = argv[0]
        try:
            if os.name == "nt" or not sys.executable or getattr(sys, "frozen", False):  # no interpreter to watch with
                return cls(await _spawn(argv, folder, env, ()), None, log)
            ours, lifeline = os.pipe()
            try:
                argv = [sys.executable, "-I", "-S", str(_LAUNCHER), str(ours), *argv]
                process = await _spawn(argv, folder, env, (ours,))
            except BaseException:
                os.close(lifeline)
                raise
            finally:
                os.close(ours)
        except (OSError, ValueError) as error:
            raise CannotStartError(f"{command} cannot be started: {error}") from error
        return cls(process, lifeline, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.returncode

    async def read(self) -> bytes:
        """The next piece of output; empty at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(256 * 1024)

    async def write(self, data: bytes) -> None:
        """Raise OSError when nobody reads any more."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    def cut(self) -> None:
        """Everything the server started is ended from here on, whatever becomes of us."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        elif self._process.returncode is None:
            self._kill()

    async def end(self) -> None:
        """Close its input, as the protocol says a server is asked to go; then it has to."""
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
        """Whether it ended in time. `Process.wait` would also wait for its pipes."""
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


async def _spawn(argv: list[str], cwd: Path, env: dict[str, str], passed: tuple[int, ...]) -> Process:
    own_session = os.name != "nt"
    return await asyncio.create_subprocess_exec(
        *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=own_session, pass_fds=passed
    )
