"""The only writer to the terminal: the program's `sys.stdout` and `sys.stderr`.

Control characters in the text it receives are written as escapes (`core/controls.py`) to a terminal, a pipe or a file.
Only two functions send escape sequences: `write_span` sends the colours of a text, and `send_control` sends a
`ControlSequence`, which only this module creates.

This module is imported at every start, so it avoids `re` and `typing`.
"""

from __future__ import annotations

import io
import sys

from retinue.core.controls import escape_controls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


class TerminalWriter(io.TextIOWrapper):
    """A text stream that passes no control characters of its input."""

    def write(self, text: str) -> int:
        super().write(escape_controls(text))
        return len(text)

    def write_sequences(self, text: str) -> None:
        """Write text that this module has composed."""
        super().write(text)


def open_writer(stream: TextIO) -> TextIO:
    """Return a writer that replaces `stream`, or `stream` itself if it is not a plain text stream."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return TerminalWriter(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


# Escape sequences of the program


class ControlSequence(str):
    """One or more escape sequences that this module created."""

    __slots__ = ()

    def __add__(self, other: str) -> ControlSequence:
        if not isinstance(other, ControlSequence):
            raise TypeError("only another ControlSequence can follow")
        return ControlSequence(f"{self}{other}")


NO_SEQUENCE = ControlSequence("")
KEEP_TITLE = ControlSequence("\x1b[22;2t")
"""Makes the terminal store the title that the shell has set."""
RESTORE_TITLE = ControlSequence("\x1b[23;2t")
RESET_TERMINAL = ControlSequence(
    "\x1b[?1049l"  # the ordinary screen
    "\x1b[?25h"  # the cursor
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l"  # no mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # no focus, paste and size reports
    "\x1b[<u\x1b[?7h\x1b[0m"  # plain keys, wrapping, plain text
    f"{RESTORE_TITLE}"
)
BELL = ControlSequence("\x07")


def operating_system_command(*fields: str, end: ControlSequence = BELL) -> ControlSequence:
    """Return an OSC sequence, such as a title or a notification. No field can end it or begin another one."""
    return ControlSequence(f"\x1b]{';'.join(map(_field, fields))}{end}")


STRING_TERMINATOR = ControlSequence("\x1b\\")


def _field(text: str) -> str:
    return escape_controls(text).replace("\n", " ").replace("\t", " ").replace(";", ",")


def send_control(stream: TextIO, sequence: ControlSequence) -> None:
    """Send a sequence of the program immediately."""
    if not isinstance(sequence, ControlSequence):
        raise TypeError("only a ControlSequence may be sent")
    _write_raw(stream, sequence)
    stream.flush()


def write_span(stream: TextIO, text: str, codes: str = "") -> None:
    """Write `text` in a style. `codes` are the numbers of an SGR sequence, such as `1;31`, or empty for plain text."""
    if not codes:
        stream.write(text)
        return
    if not codes.replace(";", "").isdecimal() or not codes.isascii():
        raise ValueError("the codes of a style are numbers")
    _write_raw(stream, f"\x1b[{codes}m{escape_controls(text)}\x1b[0m")


def _write_raw(stream: TextIO, text: str) -> None:
    if isinstance(stream, TerminalWriter):
        stream.write_sequences(text)
    else:
        stream.write(text)


# Documents on standard output


def print_json(document: bytes, end: bytes = b"\n", *, flush: bool = True) -> None:
    """Print a JSON document in UTF-8, whatever the encoding of the terminal."""
    _print_bytes(escape_json(document) + end, flush)


def put(text: str) -> None:
    """Print text in UTF-8. A path may contain bytes that are not characters; pipes and files receive them unchanged."""
    if sys.stdout.isatty():
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        _print_bytes(escape_controls(text, keep_bytes=True).encode("utf-8", "surrogateescape"))


def put_file(text: str) -> None:
    """Print the content of a file: byte for byte into a pipe or file, and escaped on a terminal."""
    if sys.stdout.isatty():
        put(text)
    else:
        _print_bytes(text.encode("utf-8", "surrogateescape"))


def _print_bytes(data: bytes, flush: bool = True) -> None:
    """Write to the binary stream, after flushing the text stream above it."""
    if flush:
        sys.stdout.flush()
    sys.stdout.buffer.write(data)
    if flush:
        sys.stdout.buffer.flush()


def escape_json(document: bytes) -> bytes:
    """Return a JSON document in UTF-8 with the control characters of its strings escaped."""
    if document.isascii() and b"\x7f" not in document:
        return document
    return escape_controls(document.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")


def workflow_command(level: str, values: Mapping[str, object], message: str) -> str:
    """Return a command for GitHub's workflows (`::error file=…::…`). No text in it can end or forge a command."""
    properties = []
    for key, value in values.items():
        if value is not None:
            properties.append(f"{key}={_escape_line(str(value)).replace(':', '%3A').replace(',', '%2C')}")
    return f"::{level} {','.join(properties)}::{_escape_line(message)}"


def _escape_line(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
