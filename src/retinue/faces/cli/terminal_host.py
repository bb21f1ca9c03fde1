"""The app in a process of its own, and one that waits for it and keeps the terminal safe.

The process that the shell started only waits. So the app can leave the terminal and go on with
its agents, undisturbed, while the shell gets its prompt back; and whatever becomes of the app, a
crash or a kill -9 included, the one that waited puts the terminal back in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

RESET = (
    "\x1b[?1049l"  # the ordinary screen
    "\x1b[?25h"  # the cursor
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l"  # no mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # no focus, paste and size reports
    "\x1b[<u\x1b[?7h\x1b[0m"  # plain keys, wrapping, plain text
)
KEEP = b"k"


class Host:
    """The app's side: how it lets go of the terminal."""

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def watch(self, gone: Callable[[], None]) -> None:
        """Calls `gone` when the process that waits has died: nobody is at the terminal then."""
        import asyncio

        loop = asyncio.get_running_loop()

        def look() -> None:
            if not os.read(self._channel, 1):
                loop.remove_reader(self._channel)
                gone()

        loop.add_reader(self._channel, look)

    def let_go(self) -> None:
        """Gives the terminal back to the shell. What this process says from now on is nowhere."""
        import asyncio

        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._channel)
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        os.write(self._channel, KEEP)
        os.close(self._channel)


def hosted(work: Callable[[Host | None], int]) -> int:
    """Runs `work` in a child of this process and gives its exit code; 0 as soon as it has let go
    of the terminal. Where there is no fork it runs here, with None for its host."""
    if not hasattr(os, "fork"):
        return work(None)
    import socket

    before = _terminal()
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child = os.fork()
    if child == 0:
        ours.close()
        os._exit(_child(work, Host(theirs.detach())))
    theirs.close()
    return _wait(child, ours.detach(), before)


def _child(work: Callable[[Host | None], int], host: Host) -> int:
    from retinue.faces.cli.main import guarded_run

    try:
        code = guarded_run(lambda: work(host))
    except BaseException:  # noqa: BLE001 - this process ends here, whatever it was
        import traceback

        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def _wait(child: int, channel: int, before: Any) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: _pass_on(child, received))
    while True:
        try:
            said = os.read(channel, 1)
            break
        except InterruptedError:
            continue
    if said == KEEP:
        return 0
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        _restore(before)
        name = signal.Signals(-code).name
        print(f"retinue: the app was ended by {name}; go on with: retinue --resume", file=sys.stderr)
        return 128 - code
    return code


def _pass_on(child: int, received: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, received)


def _terminal() -> Any:
    try:
        import termios

        return termios.tcgetattr(0)
    except (ImportError, OSError, ValueError):
        return None
    except Exception as error:  # termios.error is no OSError
        if type(error).__name__ != "error":
            raise
        return None


def _restore(before: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(2, RESET.encode())
    if before is not None:
        import termios

        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)
