"""Standard input and output reserved for a protocol.

Both are moved to other descriptors before any import that might write. A stray `print`, a library or a child process
then writes to standard error, and only the protocol reads the client's input.

One thread reads and one writes, so neither the event loop nor a run ever waits for the client.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable

MAX_LINE_BYTES = 64 * 2**20
"""The longest line that is accepted."""
MAX_BACKLOG_BYTES = 4 * 2**20
"""Bytes that wait for a slow client before the translation waits as well."""
_READ_BYTES = 2**16
_FLUSH_SECONDS = 2.0


class TooLongLine:
    """Replaces a line that was longer than `MAX_LINE_BYTES` and was skipped."""


Line = bytes | TooLongLine


class LinePipes:
    """Lines from one descriptor and to another. Use from one event loop, in which `closed` is called when the client
    stops reading."""

    def __init__(self, reading: int, writing: int, closed: Callable[[], None] = lambda: None) -> None:
        self._reading = reading
        self._writing = writing
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[list[Line] | None] = asyncio.Queue(16)
        self._outgoing: list[bytes] = []
        self._backlog = 0
        self._change = threading.Condition()
        self._room = asyncio.Event()
        self._room.set()
        self._broken = False
        self._ended = False

    def start(self) -> None:
        """Start reading and writing."""
        threading.Thread(target=self._read, name="protocol in", daemon=True).start()
        threading.Thread(target=self._write, name="protocol out", daemon=True).start()

    async def lines(self) -> AsyncIterator[Line]:
        """Yield the client's lines until it closes the pipe."""
        while True:
            some = await self._arrived.get()
            if some is None:
                return
            for line in some:
                yield line

    def send(self, line: bytes) -> None:
        """Send one line, which must not contain a line feed."""
        with self._change:
            if self._broken:
                return
            self._outgoing.append(line)
            self._backlog += len(line)
            if self._backlog > MAX_BACKLOG_BYTES:
                self._room.clear()
            self._change.notify()

    async def drain(self) -> None:
        """Wait while the backlog of a slow client is too large."""
        await self._room.wait()

    def end(self) -> None:
        """Give a client that still reads time to receive the backlog, and stop."""
        with self._change:
            self._ended = True
            self._change.notify()
            self._change.wait_for(lambda: self._broken or not self._backlog, _FLUSH_SECONDS)

    # Threads

    def _read(self) -> None:
        buffer = LineBuffer()
        while True:
            try:
                piece = os.read(self._reading, _READ_BYTES)
            except OSError:
                piece = b""
            if not self._deliver(buffer.take(piece) if piece else buffer.rest()):
                return
            if not piece:
                self._deliver(None)
                return

    def _deliver(self, lines: list[Line] | None) -> bool:
        """Pass lines to the event loop and wait until it has room for more. Return False if it is closed."""
        if lines is not None and not lines:
            return True
        work = self._arrived.put(lines)
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except (RuntimeError, asyncio.CancelledError):
            work.close()
            return False
        return True

    def _write(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._outgoing or self._ended)
                lines, self._outgoing = self._outgoing, []
            if not lines:
                return
            data = b"\n".join(lines) + b"\n"
            try:
                while data:
                    data = data[os.write(self._writing, data) :]
            except OSError:
                self._break()
                return
            with self._change:
                self._backlog -= sum(map(len, lines))
                self._change.notify_all()
            self._call(self._room.set)

    def _break(self) -> None:
        with self._change:
            self._broken = True
            self._outgoing.clear()
            self._backlog = 0
            self._change.notify_all()
        self._call(self._room.set)
        self._call(self._closed)

    def _call(self, what: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            # The event loop is closed: the process ends.
            return


class LineBuffer:
    """Splits a stream into lines. A line that is too long is skipped without being stored."""

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        self._skips = False

    def take(self, piece: bytes) -> list[Line]:
        """Return the lines that this piece completes."""
        lines: list[Line] = []
        *ended, unfinished = piece.split(b"\n")
        for fragment in ended:
            self._add(fragment)
            lines.append(self._line())
        self._add(unfinished)
        return lines

    def rest(self) -> list[Line]:
        """Return the text after the last line feed."""
        return [self._line()] if self._size or self._skips else []

    def _add(self, fragment: bytes) -> None:
        self._size += len(fragment)
        if self._size > self._most:
            self._skips = True
            self._parts.clear()
        elif fragment:
            self._parts.append(fragment)

    def _line(self) -> Line:
        line: Line = TooLongLine() if self._skips else b"".join(self._parts)
        self._parts, self._size, self._skips = [], 0, False
        return line
