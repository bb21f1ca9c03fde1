"""The one place that starts programs.

`prepare` takes a clearance, which says who let the program start, and asks the caller's sandbox for the confinement
that follows from it. Everything else here starts what `prepare` returned. No other module may start a program
(`tests/test_programs.py`), so a program without a clearance does not exist.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.core.clearance import Clearance, Confine
from retinue.errors import StateError

if TYPE_CHECKING:
    from asyncio.subprocess import Process

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
TimeoutExpired = subprocess.TimeoutExpired
CompletedProcess = subprocess.CompletedProcess
Popen = subprocess.Popen


class NotConfinedError(OSError):
    """The program did not start, because the sandbox that its clearance asks for could not be made."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)


class PreparedProgram(Struct, frozen=True):
    """A program that may start. Made by `prepare` only."""

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
    """Return the program inside the sandbox that follows from its clearance. Blocks while a sandbox is made. Raise
    NotConfinedError where it cannot be made, and for `inside` where there is none."""
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
    given: bytes | None = None,
    seconds: float | None = None,
    output: Literal["separate", "merged", "inherited"] = "separate",
) -> CompletedProcess[bytes]:
    """Run a program to its end. `inherited` leaves the terminal to it. Raise OSError, and TimeoutExpired after
    `seconds`, when it has been killed."""
    captured = None if output == "inherited" else PIPE
    stdin = None if output == "inherited" or given is not None else DEVNULL
    return subprocess.run(  # noqa: S603 - cleared by `prepare`
        program.argv,
        cwd=program.cwd,
        env=program.environment,
        stdin=stdin,
        input=given,
        stdout=captured,
        stderr=STDOUT if output == "merged" else captured,
        timeout=seconds,
        check=False,
    )


def open_program(
    program: PreparedProgram, *, stdin: int = DEVNULL, stdout: int | IO[bytes] = PIPE, stderr: int | None = None
) -> Popen[bytes]:
    """Start a program in a session of its own. Whoever calls this ends it."""
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
    """Start a program with pipes, in a session of its own. `launcher` are words of Retinue's own that start it, outside
    of its sandbox; `descriptors` are files that they get open."""
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
    """Start a program in a session of its own and pass its output to `protocol`."""
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
