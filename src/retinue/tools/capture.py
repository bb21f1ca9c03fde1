"""The output of a command, bounded: beginning and end in memory, the whole in a file.

Memory stays constant however much a command prints. The file is made only when the output
does not fit the result, and has a cap of its own.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from retinue.core.format import format_bytes
from retinue.tools.clean import StreamCleaner, clean
from retinue.tools.truncate import join_parts, trim_head, trim_tail

SHOWN = 30_000
"""Characters of a command's output that a model gets."""
HEAD = 12_000
FILE_BYTES = 16 * 1024 * 1024

_TAIL = SHOWN - HEAD


class Capture:
    """Feed it bytes; ask for `text` once they have ended."""

    def __init__(self, outputs: Path, label: str) -> None:
        self._outputs = outputs
        self._label = label
        self._cleaner = StreamCleaner()
        self._head = ""  # everything, until it does not fit
        self._tail = ""
        self._raw_tail = b""  # what came after the file was full, uncleaned
        self._file: BinaryIO | None = None
        self._stored = 0
        self.bytes = 0
        self.lines = 0
        self.path: Path | None = None

    def feed(self, data: bytes) -> str:
        """Takes a piece of output and gives back what it adds to the display."""
        self.bytes += len(data)
        self.lines += data.count(b"\n")
        if self._stored >= FILE_BYTES:
            self._raw_tail = (self._raw_tail + data)[-4 * _TAIL :]
            return ""
        text = self._cleaner.feed(data)
        self._add(text)
        return text

    @property
    def pending(self) -> str:
        return self._cleaner.pending

    def _add(self, text: str) -> None:
        if self.path is not None:
            self._store(text)
            self._tail = (self._tail + text)[-_TAIL:]
        elif len(self._head) + len(text) <= SHOWN:
            self._head += text
        else:
            whole = self._head + text
            self._open()
            self._store(whole)
            self._head, self._tail = whole[:HEAD], whole[HEAD:][-_TAIL:]

    def _open(self) -> None:
        self.path = self._outputs / f"{self._label}-{secrets.token_hex(6)}.txt"
        with suppress(OSError):
            self._outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _store(self, text: str) -> None:
        room = FILE_BYTES - self._stored
        data = text.encode("utf-8", "replace")
        self._stored += len(data)
        if len(data) > room:
            data = data[: max(0, room)].decode("utf-8", "ignore").encode()
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError:  # a full disk must not end the command: what is shown stays right
                self.close()
                self._file = None

    def text(self) -> str:
        """What the model sees. Call once, after the last piece."""
        self._add(self._cleaner.feed(b"", final=True))
        self.close()
        if self.path is None:
            return self._head
        if self._raw_tail:
            self._tail = (self._tail + clean(self._raw_tail.decode("utf-8", "replace")))[-_TAIL:]
        gap = f"cut here: {format_bytes(self.bytes)} and {self.lines:,} lines in all; {self._rest()}"
        return join_parts(trim_head(self._head), gap, trim_tail(self._tail))

    def _rest(self) -> str:
        if self._file is None:
            return "the rest could not be stored"
        if self._stored > FILE_BYTES:
            return f"the first {format_bytes(FILE_BYTES)} are in {self.path}"
        return f"read or grep the whole in {self.path}"

    def close(self) -> None:
        """Safe to call at any time and more than once."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
