"""Patterns of file names as regular expressions that need no more than linear time.

Everything before the last `*` of a component, and before the last `**` of a pattern, is matched at the
first place where it fits and never reconsidered (the atomic groups). That is correct for such patterns,
and no pattern can make a match take exponential time.
"""

from __future__ import annotations

import re

_END = r"(?=/|\Z)"


def component_regex(part: str) -> str:
    """Return the expression for one component, which contains no slash."""
    # The chunks are the pieces between the stars, each of fixed length.
    chunks, index = [""], 0
    while index < len(part):
        character = part[index]
        index += 1
        if character == "*":
            chunks.append("")
        elif character == "?":
            chunks[-1] += "[^/]"
        elif character == "[" and (end := _class_end(part, index)) > 0:
            chunks[-1] += _class(part[index:end])
            index = end + 1
        elif character == "\\":
            chunks[-1] += re.escape(part[index : index + 1])
            index += 1
        else:
            chunks[-1] += re.escape(character)
    if len(chunks) == 1:
        return chunks[0]
    middle = "".join(f"(?>[^/]*?{chunk})" for chunk in chunks[1:-1] if chunk)
    return f"{chunks[0]}{middle}[^/]*{chunks[-1]}"


def gitignore_regex(pattern: str) -> str | None:
    """Return the expression for a line of a gitignore file: it matches, from the start, what the line names and
    everything below. None for a line that names nothing. Comments and exceptions are not known here."""
    if not pattern.endswith("\\ "):
        pattern = pattern.rstrip()
    if pattern in ("", "/"):
        return None
    parts = _normalise(pattern.split("/"))
    inside = parts[-1] == "**"
    runs: list[list[str]] = [[]]
    for part in parts[:-1] if inside else parts:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append("[^/]+" if part == "*" else component_regex(part))
    ends = [_END] * (len(runs) - 1) + ["(?=/)" if inside else _END]
    text = "/".join(runs[0]) + ends[0] if runs[0] else ""
    for run, end in zip(runs[1:], ends[1:], strict=True):
        slash = "/" if text else ""
        text += f"{slash}(?>(?:[^/]*/)*?{'/'.join(run)}{end})"
    if text:
        return text
    return ".*/" if pattern.endswith("/") else ".*"


def _normalise(parts: list[str]) -> list[str]:
    """Return the components with `**` for what a leading, missing or closing slash means, and none twice in a row."""
    if not parts[0]:
        parts = parts[1:]
    elif len(parts) == 1 or parts[1:] == [""]:
        parts = ["**", *parts]
    if not parts[-1]:
        parts = [*parts[:-1], "**"]
    return [part for index, part in enumerate(parts) if part != "**" or parts[index - 1 : index] != ["**"]]


def _class_end(part: str, index: int) -> int:
    """Return where the class that starts at `index` closes; a `]` that comes first is a member."""
    skip = 1 + (part[index : index + 1] in ("!", "^"))
    return part.find("]", index + skip)


def _class(body: str) -> str:
    negated = body[:1] in ("!", "^")
    members = body[negated:]
    safe = re.sub(r"([\\\]\[^&~|])", r"\\\1", members)
    # At an end it is no range, whatever stands beside it.
    safe = re.sub(r"^-|-$", r"\\-", safe)
    try:
        re.compile(f"[{safe}]")
    except re.error:  # a range that runs backwards: its characters one by one
        safe = re.escape(members)
    return f"[^/{safe}]" if negated else f"[{safe}]"
