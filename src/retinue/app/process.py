"""This process: signals, and standard streams for a protocol."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def handle_signals(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Call a handler in the running event loop for each signal, until the block is left. On Windows, event loops have
    no signal handlers and KeyboardInterrupt ends the program."""
    loop = asyncio.get_running_loop()
    try:
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
    except NotImplementedError:
        yield
        return
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def on_end(end: Callable[[], object]) -> AbstractContextManager[None]:
    """Call `end` for Ctrl-C and SIGTERM, until the block is left."""
    return handle_signals(dict.fromkeys((signal.SIGINT, signal.SIGTERM), end))


def claim_standard_streams() -> tuple[int, int]:
    """Move standard input and output to new descriptors and return these. The usual descriptors become an empty input
    and standard error. Raise OSError if one of them is closed."""
    reading, writing = os.dup(0), os.dup(1)
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return reading, writing
