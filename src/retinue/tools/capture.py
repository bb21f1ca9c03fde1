"""The output of a command as plain, bounded text: beginning and end in memory, the whole in a file.

Escape sequences and overwritten progress bars are removed. Text is never cut inside a character, and
a cut always says how much is missing. Memory stays constant however much a command prints. The file
is made only when the output does not fit the result, and has a cap of its own.

`head_and_tail` is for tool output, where the end matters as much as the start. The answer of a
whole run keeps its beginning under a marker line instead: see `retinue.loop.finish`.
"""

from __future__ import annotations

import codecs
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from retinue.core.format import format_bytes

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OVERSTRUCK = re.compile(r"[^\n]\x08")


def clean(text: str) -> str:
    """Return `text` roughly as a terminal would show it in the end: of what a carriage return
    overwrites, the last version stays. Tabs and newlines are the only controls left."""
    if _CONTROLS.search(text) is None:
        return text
    text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(map(_standing, text.split("\n")))
    return _CONTROLS.sub("", _OVERSTRUCK.sub("", text))


def _standing(line: str) -> str:
    """Return what is left of a line after its carriage returns."""
    return line.rstrip("\r").rpartition("\r")[2]


class StreamCleaner:
    """`clean` for bytes that arrive in pieces. Works in whole lines; a line without an end is
    held back until it is HELD characters long."""

    HELD = 65_536

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        text = self._held + self._decoder.decode(data, final)
        end = text.rfind("\n") + 1
        if final:
            end = len(text)
        # A progress bar without line ends: what it has overwritten is dropped before the line is cut.
        if len(text) - end > self.HELD:
            overwritten = text.rfind("\r", end, len(text) - 1)
            if overwritten >= 0:
                text = text[:end] + text[overwritten + 1 :]
            if len(text) - end > self.HELD:
                end = len(text)
        self._held = text[end:]
        return clean(text[:end])

    @property
    def pending(self) -> str:
        """The unfinished line as it stands, for live displays."""
        return clean(self._held[-2000:])[-200:]


def line_count(text: str) -> int:
    """Count lines as an editor does: a final newline ends the last line and starts none."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def head_and_tail(text: str, most: int, rest: str, *, head_share: float = 0.4) -> str:
    """Return at most about `most` characters of `text`: its beginning and its end, cut at line ends
    where there are any, with a line between them that counts the gap and says `rest`."""
    if len(text) <= most:
        return text
    head_size = int(most * head_share)
    head = trim_head(text[:head_size])
    tail = trim_tail(text[len(text) - (most - head_size) :])
    missing = len(text) - len(head) - len(tail)
    gap = f"{missing:,} of {len(text):,} characters ({line_count(text):,} lines in all) left out here"
    return join_parts(head, "; ".join(filter(None, (gap, rest))), tail)


def join_parts(head: str, gap: str, tail: str) -> str:
    return f"{head.rstrip()}\n\n[... {gap} ...]\n\n{tail.lstrip(chr(10))}"


def trim_head(text: str) -> str:
    """Return `text` without its last, probably broken line, unless that is most of it."""
    end = text.rfind("\n")
    return text[: end + 1] if end > len(text) // 2 else text


def trim_tail(text: str) -> str:
    start = text.find("\n")
    return text[start + 1 :] if 0 <= start < len(text) // 2 else text


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
        # Everything, until it does not fit.
        self._head = ""
        self._tail = ""
        # What came after the file was full, uncleaned.
        self._raw_tail = b""
        self._file: BinaryIO | None = None
        self._stored = 0
        self.bytes = 0
        self.lines = 0
        self.path: Path | None = None

    def feed(self, data: bytes) -> str:
        """Take a piece of output and return what it adds to the display."""
        self.bytes += len(data)
        self.lines += data.count(b"\n")
        # Cleaning costs far more than copying: past the cap only the newest bytes are kept, as they are.
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
        """Return what the model sees. Call once, after the last piece."""
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
