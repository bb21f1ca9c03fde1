"""Text of agents on a terminal: nothing in it may steer the terminal or pose as something else."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


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
    """`text` with control characters written out, and its own signs left alone: for answers,
    which may be in any script."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
