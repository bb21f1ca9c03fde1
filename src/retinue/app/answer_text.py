"""The answer of a run as a reader of standard output gets it."""

from __future__ import annotations

import sys

from retinue.core.outcome import Outcome


def printed_answer(outcome: Outcome) -> str:
    """Return what a run leaves on stdout: what it said, and of one that failed nothing of ours."""
    text = for_reader(outcome.text)
    if not text and outcome.ok:
        return "No output."
    return text


def for_reader(text: str) -> str:
    """Return an answer for stdout: as it is for the writer of a terminal, without terminal escapes for a program."""
    if sys.stdout.isatty():
        return text
    # An escape in a file would act as soon as somebody prints that file.
    from retinue.tools.capture import clean

    # Nothing of an answer is overwritten.
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return clean(lines.replace("\x08", ""))
