"""What the program prints: nothing in it hides or turns the text around.

C1 controls, which some terminals obey, and signs that change the direction of text are written as
`\\uXXXX`: a reader of JSON gets back what was there, a person sees it. Raw text of a file (`put` of
the agents' commands) goes to the buffer below, as it is.

Imported at every start, so without `re` and `typing`.
"""

from __future__ import annotations

import io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

_HIDING = (*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\u{code:04x}" for code in _HIDING}


class EscapingOutput(io.TextIOWrapper):
    """A stream of text in which nothing hides."""

    def write(self, text: str) -> int:
        shown = text
        if not text.isascii():
            shown = text.translate(_ESCAPES)
        super().write(shown)
        return len(text)


def escaping(stream: TextIO) -> TextIO:
    """Return `stream` with everything that is written to it escaped, or itself where it is no plain stream."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return EscapingOutput(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def escape_json(document: bytes) -> bytes:
    """Return a JSON document in UTF-8 with the same signs escaped: they stand in its strings only."""
    if document.isascii():
        return document
    return document.decode("utf-8", "surrogatepass").translate(_ESCAPES).encode("utf-8", "surrogatepass")


def workflow_command(level: str, values: Mapping[str, object], message: str) -> str:
    """Return a command for GitHub's workflows (`::error file=…::…`): no text in it can end or forge one."""
    properties = []
    for key, value in values.items():
        if value is not None:
            properties.append(f"{key}={_escape_line(str(value)).replace(':', '%3A').replace(',', '%2C')}")
    return f"::{level} {','.join(properties)}::{_escape_line(message)}"


def _escape_line(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
