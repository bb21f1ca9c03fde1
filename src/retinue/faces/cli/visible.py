"""Text of agents on a terminal or in a pipe: nothing in it may steer a terminal or pose as something else."""

from __future__ import annotations

import re
import sys

_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys, takes for a new line, or lets turn the text around."""


def visible(text: str) -> str:
    """`text` with everything that does not show itself written as an escape: for calls, which
    people judge by what they see."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def in_line(text: str) -> str:
    """The same for what must stay on its line: a file name can hold a line break, too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def harmless(text: str) -> str:
    """`text` with what would move the cursor, change colours or turn it around written out, and
    its own signs left alone: for answers, which may be in any script."""
    if not _HARMFUL.search(text):
        return text
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """Harmless, on one line, cut to `width`."""
    line = harmless(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def for_reader(text: str) -> str:
    """For stdout: harmless where a person reads it; for a program without the escapes of a terminal,
    which would act when somebody prints the file that it went to."""
    if sys.stdout.isatty():
        return harmless(text)
    from retinue.tools.clean import clean

    lines = text.replace("\r\n", "\n").replace("\r", "\n")  # nothing of an answer is overwritten
    return clean(lines.replace("\x08", ""))
