"""Reading of files of a project: regular files only, of limited size, without waiting.

A clone can hold links to devices, and an unpacked archive can hold pipes. Reading a device fills the memory, and
opening a pipe blocks for ever. Links are followed, because people link their settings and agents; the target must be
a regular file. `/dev/null` reads as an empty file, because mounting it over a file is the usual way to hide the file.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from typing import Literal

MAX_PROJECT_FILE_BYTES = 10 * 1024 * 1024
NO_LIMIT = sys.maxsize
MAX_READ_SECONDS = 10.0
_CHUNK_BYTES = 1024 * 1024
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_FILE_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class FileRefusedError(OSError):
    """A file that is not read. `strerror` is the reason for people, `reason` for programs."""

    def __init__(self, reason: Literal["not-a-file", "too-large"], text: str, path: str) -> None:
        super().__init__(errno.EINVAL, text, path)
        self.reason = reason


def read_file(path: str | os.PathLike[str], max_bytes: int = MAX_PROJECT_FILE_BYTES) -> bytes:
    """Return the content of a regular file. Raise OSError; FileRefusedError for anything but a regular file, and for
    one of more than `max_bytes`."""
    return read_with_status(path, max_bytes)[0]


def read_head(path: str | os.PathLike[str], count: int) -> bytes:
    """Return the first `count` bytes of a regular file of any size. Raise OSError as `read_file` does."""
    descriptor, status = _open(path)
    try:
        return _read(descriptor, status, count, os.fspath(path))
    finally:
        os.close(descriptor)


def read_text(path: str | os.PathLike[str], max_bytes: int = MAX_PROJECT_FILE_BYTES, errors: str = "strict") -> str:
    """Return a regular file as UTF-8 text with plain line ends. Raise OSError as `read_file` does, and
    UnicodeDecodeError."""
    text = read_file(path, max_bytes).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_with_status(
    path: str | os.PathLike[str], max_bytes: int = MAX_PROJECT_FILE_BYTES
) -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file with its status from before it was read. Raise OSError as `read_file`."""
    descriptor, status = _open(path)
    try:
        # One byte more tells a file that just fits from one that has grown since.
        data = b"" if status.st_size > max_bytes else _read(descriptor, status, max_bytes + 1, os.fspath(path))
    finally:
        os.close(descriptor)
    size = max(status.st_size, len(data))
    if size > max_bytes:
        text = f"it has {size:,} bytes, and at most {max_bytes:,} are read"
        raise FileRefusedError("too-large", text, os.fspath(path))
    return data, status


def _open(path: str | os.PathLike[str]) -> tuple[int, os.stat_result]:
    try:
        # Non-blocking: opening a pipe returns at once.
        descriptor = os.open(path, _OPEN_FLAGS)
    except ValueError as error:  # a path with a NUL in it
        raise OSError(errno.EINVAL, str(error)) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) or _is_null(status):
        return descriptor, status
    os.close(descriptor)
    kind = _FILE_KINDS.get(stat.S_IFMT(status.st_mode), "something else")
    raise FileRefusedError("not-a-file", f"it is {kind}, not a regular file", os.fspath(path))


def _is_null(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116 - quick


def _read(descriptor: int, status: os.stat_result, count: int, path: str) -> bytes:
    chunks: list[bytes] = []
    unread = count
    deadline = time.monotonic() + MAX_READ_SECONDS
    # Files have their size and no more, in almost every case.
    size = min(unread, status.st_size + 1)
    while unread > 0 and (chunk := os.read(descriptor, size)):
        chunks.append(chunk)
        unread -= len(chunk)
        size = min(unread, _CHUNK_BYTES)
        if time.monotonic() > deadline:
            text = f"it took longer than {MAX_READ_SECONDS:.0f} seconds to read"
            raise TimeoutError(errno.ETIMEDOUT, text, path)
        if len(chunk) == status.st_size:
            # As nearly always: that was all of it.
            break
    if chunks and status.st_size == 0 and os.fstat(descriptor).st_size == 0:
        # Files of the kernel have no size; some tell secrets of this process, and some never end.
        raise FileRefusedError("not-a-file", "it is a file of the kernel, not a regular file", path)
    return b"".join(chunks)
