"""The words, signs and phrases that all front ends share, and text that is safe for a terminal.

`clean` is for names and descriptions in lists; `core/controls.py` has the escapes for other texts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from retinue.core.controls import escape_controls, in_line
from retinue.core.delegation import Status
from retinue.core.format import format_wait
from retinue.core.outcome import Outcome
from retinue.core.story import CallState

if TYPE_CHECKING:
    from retinue.capabilities.audit.report import CallEffect, TurnEffects

Tone = Literal["dim", "accent", "success", "warning", "error"]


class Mark(NamedTuple):
    """A sign with its tone and its word, so that it is readable without colour."""

    sign: str
    tone: Tone
    word: str


STATUS_MARKS: Mapping[Status, Mark] = {
    "queued": Mark("◦", "dim", "queued"),
    "starting": Mark("●", "accent", "starting"),
    "running": Mark("●", "accent", "running"),
    "waiting": Mark("?", "warning", "waiting"),
    "interrupted": Mark("■", "warning", "interrupted"),
    "completed": Mark("✓", "success", "completed"),
    "steered": Mark("✓", "warning", "steered"),
    "stopped": Mark("■", "dim", "stopped"),
    "aborted": Mark("✗", "error", "aborted"),
    "timeout": Mark("✗", "error", "timeout"),
    "over-budget": Mark("✗", "error", "over-budget"),
    "refused": Mark("✗", "error", "refused"),
    "error": Mark("✗", "error", "error"),
}
"""The status of a run as people see it. Documents for programs have the keys."""
CALL_MARKS: Mapping[CallState, Mark] = {
    "pending": Mark("●", "dim", "pending"),
    "running": Mark("●", "accent", "running"),
    "finished": Mark("✓", "success", "finished"),
    "failed": Mark("✗", "error", "failed"),
    "denied": Mark("⊘", "warning", "denied"),
    "cut": Mark("■", "warning", "cut off"),
}
ASKING_MARK = Mark("?", "warning", "waits for your answer")
RUN_SIGNS = {"completed": "✓", "steered": "✓", "stopped": "■", "interrupted": "!", "queued": "◦"}
INBOX_MARKS = {"waiting": "?", "answered": "✓", "expired": "⏱", "withdrawn": "–"}
_MAX_NAMED_READS = 10
EFFECT_SIGNS = {"created": "+", "changed": "~", "deleted": "-", "unchanged": "="}


# Phrases


def clip(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, with an ellipsis if it was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…"


def plural(count: int, noun: str) -> str:
    """Return `1 run` or `2 runs`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def optional(template: str, value: object) -> str:
    """Return `template` with `value` in place of `{}`; empty if there is no value."""
    if not value:
        return ""
    return template.format(value)


def status_word(status: Status) -> str:
    return STATUS_MARKS[status].word


def status_count(status: Status, count: int) -> str:
    """Return `2 running`; empty for none."""
    return optional("{} " + status_word(status), count)


def first_line(text: str) -> str:
    """Return the first line that is not blank, stripped."""
    for line in text.splitlines():
        if line.strip():
            return line.strip()
    return ""


def indent(lines: Iterable[str], prefix: str = "    ") -> list[str]:
    """Return the lines, each with `prefix`."""
    return [prefix + line for line in lines]


def relative(at: float | None, now: float | None = None) -> str:
    """Return `in 4m 30s` or `12s ago`; empty without a time."""
    if at is None:
        return ""
    if now is None:
        now = time.time()
    if at >= now:
        return f"in {format_wait(at - now)}"
    return f"{format_wait(now - at)} ago"


def local_time(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in the zone of this machine."""
    return time.strftime(form, time.localtime(at))


def align(rows: Sequence[Sequence[str]], left_columns: int = 1) -> list[str]:
    """Return rows of cells as aligned lines: the first `left_columns` columns to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(cell.ljust(width) if number < left_columns else cell.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


# Text of agents


def clean(text: str) -> str:
    """Return `text` with a blank for every character that could move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def clean_line(text: str, width: int = 60) -> str:
    """Return cleaned `text` on one line with single blanks, in at most `width` characters."""
    return clip(" ".join(clean(text).split()), width)


def one_line(text: str, width: int) -> str:
    """Return escaped `text` on one line, in at most `width` characters."""
    return clip(escape_controls(" ".join(text.split())), width)


# Effects of tools


def short_path(path: str, cwd: str) -> str:
    """Return a path relative to the folder of the run, on one line."""
    if path == cwd:
        return "."
    return in_line(path.removeprefix(cwd.rstrip("/") + "/"))


def reads_text(turn: TurnEffects, cwd: str) -> str:
    """Return the files that a turn has read, the first ten by name."""
    reads = []
    for call in turn.calls:
        for path in call.reads:
            reads.append(short_path(path, cwd))
    text = ", ".join(reads[:_MAX_NAMED_READS])
    if len(reads) > _MAX_NAMED_READS:
        text += f" and {len(reads) - _MAX_NAMED_READS} more"
    return text


def effect_notes(call: CallEffect) -> dict[str, str]:
    """Return further facts about a call: the hosts it reached, who answered for it, and what allowed it."""
    notes = {}
    if call.hosts:
        notes["hosts"] = ", ".join(call.hosts)
    if call.approval:
        notes["answered"] = call.approval
    if call.allowed and (call.writes or call.command):
        notes["allowed"] = call.allowed
    return notes


def printed_answer(outcome: Outcome) -> str:
    """Return the answer of a run for stdout: only the agent's text."""
    text = for_reader(outcome.text)
    if not text and outcome.ok:
        return "No output."
    return text


def failure_message(outcome: Outcome) -> str:
    """Return why a run failed."""
    return outcome.failure.message if outcome.failure is not None else f"The run ended as {outcome.ended}."


def for_reader(text: str) -> str:
    """Return an answer for stdout: unchanged for the terminal writer, without escapes for a program."""
    if sys.stdout.isatty():
        return text
    # An escape in a file would take effect when the file is printed.
    from retinue.tools.content import clean

    # No part of an answer may overwrite another.
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return clean(lines.replace("\x08", ""))
