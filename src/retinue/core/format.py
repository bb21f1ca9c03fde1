"""Numbers as people read them. Every front end prints tokens, money and time through these."""

from __future__ import annotations

import math
import os
from typing import Literal

from retinue.core.usage import Usage

Urgency = Literal["dim", "warning", "error"]


def format_count(number: int) -> str:
    """`950`, `33.8k`, `1.2M`."""
    if number < 1_000:
        return str(max(number, 0))
    if number < 999_950:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


UNIT = "token"
"""The word behind every count of what models read and write."""


def count_tokens(number: int) -> str:
    """`33.8k tokens`, in a sentence or a list of facts."""
    return f"{format_count(number)} {UNIT}s"


def format_tokens(number: int, percent: float | None = None, compactions: int = 0) -> str:
    """`33.8k token (62% · ⇊2)`: `percent` of the model's window if known, compactions if any."""
    notes = [] if percent is None else [f"{round(percent)}%"]
    if compactions > 0:
        notes.append(f"⇊{compactions}")
    text = f"{format_count(number)} {UNIT}"
    return f"{text} ({' · '.join(notes)})" if notes else text


def format_used(usage: Usage, turns: int, model: str) -> str:
    """`33.8k token`; `tokens unknown` where a language model was asked and nobody has counted."""
    return format_tokens(usage.total_tokens) if usage.is_counted(turns, model) else f"{UNIT}s unknown"


def urgency(percent: float) -> Urgency:
    """How loudly to show that a window is `percent` full."""
    if percent >= 85:
        return "error"
    return "warning" if percent >= 70 else "dim"


def context_percent(used: int | None, window: int | None) -> float | None:
    """None while either is unknown, as right after a compaction."""
    if not used or not window or used < 0 or window < 0:
        return None
    return used / window * 100


def session_tokens(usage: Usage | None) -> int:
    """The tokens to show for a run: new work only, and 0 while there is none."""
    return usage.total_tokens if usage is not None else 0


def format_cost(dollars: float | None) -> str:
    """`~$1.24`, `~$0.0042`; empty when nothing was spent or the price is not known."""
    if dollars is None or not math.isfinite(dollars) or dollars <= 0:
        return ""
    if dollars < 0.000_1:
        return "<$0.0001"
    if dollars >= 1:
        return f"~${dollars:.2f}"
    units, _, digits = f"{dollars:.4f}".partition(".")
    return f"~${units}.{digits[:2]}{digits[2:].rstrip('0')}"


def as_sentence(text: str) -> str:
    """Return a text with a full stop, if it does not end a sentence by itself."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def format_bytes(count: int) -> str:
    """`512B`, `1.5KB`, `2.0MB`."""
    if count < 1024:
        return f"{count}B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f}KB"
    return f"{count / 1024 / 1024:.1f}MB"


def format_duration(milliseconds: float) -> str:
    """`12.3s`, `1m 12s`, `1h 5m`: at most two units, rounded down above a minute."""
    if milliseconds < 60_000:
        return f"{max(milliseconds, 0) / 1_000:.1f}s"
    return _units(int(milliseconds // 1_000))


def format_wait(seconds: float) -> str:
    """`45s`, `4m 30s`: a waiting time, in whole seconds."""
    return _units(max(int(seconds), 0))


def _units(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds_left = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m {seconds_left}s" if seconds_left else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if minutes else f"{hours}h"


def retry_text(problem: str, delay: float, attempt: int, max_attempts: int = 0) -> str:
    """Return the sentence about a retry, with its delay and the number of attempts; attempt 0 is another model. The
    message of a provider need not end with a full stop."""
    text = problem.rstrip()
    end = "" if text.endswith((".", "!", "?", "…")) else "."
    if attempt == 0:
        return f"{text}{end} Another model is asked."
    limit = f" of {max_attempts}" if max_attempts else ""
    when = "now" if delay < 0.05 else f"in {delay:.1f} s"
    return f"{text}{end} Trying again {when} (attempt {attempt}{limit})."


MOVED_TEXT = "It was moved to the background."


def mode_text(mode: str, cause: str) -> str:
    """Return the sentence that tells people of a changed permission mode."""
    if cause == "plan":
        return f"The plan was approved: the permission mode is {mode} now."
    return f"The permission mode is {mode} now."


def relative(path: str, folder: str) -> str:
    """Return a path as people read it: from `folder` where it is inside."""
    inside = path.startswith(folder.rstrip("/") + "/")
    return os.path.relpath(path, folder) if inside else path


def replace_unprintable(text: str, mark: str = " ") -> str:
    """Return `text` with `mark` for every line break and control character, which could pass for something else."""
    return "".join(letter if letter.isprintable() else mark for letter in text)
