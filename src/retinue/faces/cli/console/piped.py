"""What is piped into the program beside a prompt: `git diff | retinue -p "review this"`."""

from __future__ import annotations

import os
import select
import stat
import sys

from retinue.core.person_prompt import PromptBlock
from retinue.errors import UsageError
from retinue.faces.cli.project import say

_PATIENCE_SECONDS = 3
"""How long a pipe that nobody closes may stay silent: other programs leave one open without meaning anything."""


def read_piped() -> PromptBlock | None:
    """Return what standard input holds, as a block behind the words of a prompt; None for a terminal, a device such as
    /dev/null, and a pipe that is empty. Raise UsageError for what is no text."""
    try:
        number = sys.stdin.fileno()
        kind = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        # Standard input is closed.
        return None
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or stat.S_ISREG(kind)):
        return None
    if not select.select([number], [], [], _PATIENCE_SECONDS)[0]:
        say("retinue: standard input is open and nothing comes: going on without it (< /dev/null says so at once)")
        return None
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"Standard input could not be read as text: {error}.", remedy="Pipe text, or nothing: < /dev/null"
        ) from error
    if not text.strip():
        return None
    return PromptBlock("standard_input", "stdin", text)
