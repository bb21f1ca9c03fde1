"""Server-sent events from bytes, without decoding a line.

Only the data is kept: every wire format repeats the event's name inside its JSON. The payloads do
not depend on where the network cuts the bytes.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(rb"(?:event: [^\n]*+\n)?data: ([^\n]*+)\n\n")
"""An event as nearly all are: perhaps its name, one line of data, and nothing else."""

_FIELDS = (b"data", b"event", b"id", b"retry")


def _is_field(line: bytes) -> bool:
    """Whether a line, perhaps cut off, is a comment or a field of the format."""
    name = line.partition(b":")[0]
    return not name or any(field.startswith(name) for field in _FIELDS)


class Events:
    """Feed bytes, get the payloads of the events they complete."""

    __slots__ = ("_after_return", "_data", "_first", "_rest", "foreign")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the unfinished last line, in pieces: a long one is joined once
        self._data: list[bytes] = []
        self._after_return = False
        self._first = True
        self.foreign = False
        """Whether there was a line that is not of this format."""

    def feed(self, data: bytes) -> list[bytes]:
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]  # the second half of a CRLF that was cut in two
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            self._rest.append(data)
            return []
        if self._rest:
            data = b"".join((*self._rest, data))
        if self._first:
            self._first = False
            data = data.removeprefix(b"\xef\xbb\xbf")
        payloads: list[bytes] = []
        start = 0
        if not self._data:
            while (plain := _PLAIN.match(data, start)) is not None:
                payloads.append(plain[1])
                start = plain.end()
        lines = (data[start:] if start else data).split(b"\n")
        last = lines.pop()
        self._rest = [last] if last else []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
            elif line and not _is_field(line):
                self.foreign = True
        return payloads

    def finish(self) -> list[bytes]:
        """An event that the end of the stream completed instead of an empty line."""
        return self.feed(b"\n\n")
