"""A window of lines out of a file of any size, in one pass and bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import field

from retinue.core.lean import dataclass

LINES = 2000
BYTES = 50_000
LINE_BYTES = 2000
"""A longer line is cut and says how long it is."""


@dataclass(slots=True)
class Window:
    """Lines `first` … of a file, without their newlines. `cut` has the whole length of each
    line that was cut, by its place in `lines`. `total` and `digest` (the content hash) are None
    when the file was not read to its end; `full` means that more lines follow."""

    first: int
    lines: list[bytes] = field(default_factory=list)
    cut: dict[int, int] = field(default_factory=dict)
    total: int | None = None
    digest: str | None = None
    full: bool = False
    room: int = BYTES

    @property
    def next(self) -> int:
        return self.first + len(self.lines)

    def add(self, line: bytes, length: int) -> None:
        """Takes a line of `length` bytes, of which `line` holds at least the first LINE_BYTES
        and one more; or notes that there is no room for it."""
        cost = min(length, LINE_BYTES) + 8
        if self.lines and cost > self.room:
            self.full = True
            return
        self.room -= cost
        if length > LINE_BYTES:
            self.cut[len(self.lines)] = length
            line = _whole_characters(line)
        self.lines.append(line)


def window_of(data: bytes, first: int, limit: int) -> Window:
    """The window of a file that is in memory as a whole."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    found = Window(first, total=len(lines), digest=hashlib.sha256(data).hexdigest())
    for line in lines[first - 1 : first - 1 + limit]:
        found.add(line, len(line))
        if found.full:
            break
    found.full = found.full or len(lines) > first - 1 + limit
    return found


def window(
    chunks: Iterable[bytes], first: int, limit: int, *, to_end: bool, stopped: Callable[[], bool] = lambda: False
) -> Window:
    """The same, reading piece by piece. With `to_end` the rest of the file is read too, for the
    count and the hash; otherwise reading ends with the window."""
    builder = _Builder(Window(first), limit)
    found = builder.found
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
        if len(self.found.lines) >= self.limit:
            self.found.full = True
        else:
            self.found.add(bytes(self.part), self.length)
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


def _whole_characters(line: bytes) -> bytes:
    """The first LINE_BYTES of a longer line, not ending inside a UTF-8 character."""
    end = LINE_BYTES
    while end > LINE_BYTES - 4 and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[:end]
