"""Reading one file as bytes, without ever waiting for it."""

from __future__ import annotations

import os
import stat

from retinue.agents.scan import Signature, signed
from retinue.core.spec import Problem

MAX_FILE = 10 * 1024 * 1024

_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def read_bytes(path: str) -> bytes | Problem:
    """The content of a regular file, or why not."""
    found = read_signed(path)
    return found if isinstance(found, Problem) else found[0]


def read_signed(path: str) -> tuple[bytes, Signature] | Problem:
    """The content of a regular file with its signature from before it was read."""
    try:
        descriptor = os.open(path, _READING)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        return _unreadable(error)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Problem("not-a-file", "error", "This is not a regular file.", "Name a Markdown file.")
        size = status.st_size
        if size > MAX_FILE:
            return too_large(size)
        data = os.read(descriptor, size + 1)
        while len(data) < size and (more := os.read(descriptor, size)):
            data += more
        return data, signed(status)
    except OSError as error:
        return _unreadable(error)
    finally:
        os.close(descriptor)


def too_large(size: int) -> Problem:
    text = f"The file has {size:,} bytes; at most {MAX_FILE:,} are read."
    return Problem("too-large", "error", text, "An agent is a prompt: keep it short.")


def _unreadable(error: OSError | ValueError) -> Problem:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return Problem("unreadable", "error", f"The file cannot be read: {reason}.", "Check its path and permissions.")
