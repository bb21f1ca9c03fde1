"""What a server says beside the protocol: kept for people, bounded, without secrets."""

from __future__ import annotations

import os
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
        """Takes a piece of output; whole lines are written."""
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
