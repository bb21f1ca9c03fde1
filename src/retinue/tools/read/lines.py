"""A window of lines out of a file of any size, in one pass and bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

LINES = 2000
BYTES = 50_000
LINE_BYTES = 2000
"""A longer line is cut and says how long it is."""


@dataclass(frozen=True, slots=True)
class Line:
    """`data` without its newline, cut after LINE_BYTES; `length` is that of the whole line."""

    data: bytes
    length: int

    @property
    def cut(self) -> bool:
        return self.length > len(self.data)


@dataclass(slots=True)
class Window:
    """Lines `first` … of a file. `total` is None when the file was not read to its end;
    `digest` is its content hash under the same condition."""

    first: int
    lines: list[Line] = field(default_factory=list)
    total: int | None = None
    digest: str | None = None
    full: bool = False

    @property
    def next(self) -> int:
        return self.first + len(self.lines)


def window(
    chunks: Iterator[bytes], first: int, limit: int, *, to_end: bool, stopped: Callable[[], bool] = lambda: False
) -> Window:
    """Takes up to `limit` lines from line `first` (1-based), within BYTES. With `to_end` the
    rest is read too, for the count and the hash; otherwise reading ends with the window."""
    found = Window(first)
    builder = _Builder(found, limit)
    hasher = hashlib.sha256()
    for chunk in chunks:
        if stopped():
            return found
        if to_end:
            hasher.update(chunk)
        builder.feed(chunk)
        if found.full and not to_end:
            return found
    found.total = builder.finish()
    if to_end:
        found.digest = hasher.hexdigest()
    return found


class _Builder:
    """Counts newlines in bulk outside the window and cuts lines only inside it."""

    def __init__(self, found: Window, limit: int) -> None:
        self.found = found
        self.limit = limit
        self.number = 1  # of the line being read
        self.part = bytearray()
        self.length = 0  # of the line being read
        self.room = BYTES

    def feed(self, chunk: bytes) -> None:
        position = 0
        while position < len(chunk):
            if self.found.full or self.number < self.found.first:
                position = self._pass_over(chunk, position)
                continue
            end = chunk.find(b"\n", position)
            stop = len(chunk) if end < 0 else end
            self.length += stop - position
            self.part += chunk[position : min(stop, position + LINE_BYTES + 1 - len(self.part))]
            if end < 0:
                return
            self._close_line()
            position = end + 1

    def _pass_over(self, chunk: bytes, position: int) -> int:
        newlines = chunk.count(b"\n", position)
        missing = self.found.first - self.number
        if self.found.full or newlines < missing:
            self.number += newlines
            last = chunk.rfind(b"\n", position)
            self.length = len(chunk) - 1 - last if last >= 0 else self.length + len(chunk) - position
            return len(chunk)
        for _ in range(missing):
            position = chunk.index(b"\n", position) + 1
        self.number = self.found.first
        self.length = 0
        return position

    def _close_line(self) -> None:
        cost = min(self.length, LINE_BYTES) + 8
        if len(self.found.lines) >= self.limit or (self.found.lines and cost > self.room):
            self.found.full = True
        else:
            self.room -= cost
            self.found.lines.append(Line(_whole_characters(self.part), self.length))
        self.number += 1
        self.part.clear()
        self.length = 0

    def finish(self) -> int:
        """The number of lines; a last line without newline counts."""
        if self.length:
            if self.number >= self.found.first and not self.found.full:
                self._close_line()
            else:
                self.number += 1
        return self.number - 1


def _whole_characters(part: bytearray) -> bytes:
    """At most LINE_BYTES of a line, not ending inside a UTF-8 character. `part` has one byte
    more where the line is longer, which tells whether the cut would fall inside one."""
    end = LINE_BYTES
    if len(part) <= end:
        return bytes(part)
    while end > LINE_BYTES - 4 and part[end] & 0xC0 == 0x80:
        end -= 1
    return bytes(part[:end])
