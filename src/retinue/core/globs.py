"""Patterns of file names as regular expressions that need no more than linear time.

Everything before the last `*` of a component, and before the last `**` of a pattern, is matched at the
first place where it fits and never reconsidered (the atomic groups). That is correct for such patterns,
and no pattern can make a match take exponential time.
"""

from __future__ import annotations

import re

_COMPONENT_END = r"(?=/|\Z)"


def component_regex(component: str) -> str:
    """Return the expression for one component, which contains no slash."""
    # The chunks are the pieces between the stars, each of fixed length.
    chunks, index = [""], 0
    while index < len(component):
        character = component[index]
        index += 1
        if character == "*":
            chunks.append("")
        elif character == "?":
            chunks[-1] += "[^/]"
        elif character == "[" and (end := _class_end(component, index)) > 0:
            chunks[-1] += _class(component[index:end])
            index = end + 1
        elif character == "\\":
            chunks[-1] += re.escape(component[index : index + 1])
            index += 1
        else:
            chunks[-1] += re.escape(character)
    if len(chunks) == 1:
        return chunks[0]
    middle = "".join(f"(?>[^/]*?{chunk})" for chunk in chunks[1:-1] if chunk)
    return f"{chunks[0]}{middle}[^/]*{chunks[-1]}"


def gitignore_regex(pattern: str) -> str | None:
    """Return the expression for a line of a gitignore file. It matches, from the start, the paths that the line names
    and everything below them. Return None for a line without a name. Comments and exceptions are not supported."""
    if not pattern.endswith("\\ "):
        pattern = pattern.rstrip()
    if pattern in ("", "/"):
        return None
    components = _normalise(pattern.split("/"))
    inside = components[-1] == "**"
    runs: list[list[str]] = [[]]
    for component in components[:-1] if inside else components:
        if component == "**":
            runs.append([])
        else:
            runs[-1].append("[^/]+" if component == "*" else component_regex(component))
    ends = [_COMPONENT_END] * (len(runs) - 1) + ["(?=/)" if inside else _COMPONENT_END]
    text = "/".join(runs[0]) + ends[0] if runs[0] else ""
    for run, end in zip(runs[1:], ends[1:], strict=True):
        slash = "/" if text else ""
        text += f"{slash}(?>(?:[^/]*/)*?{'/'.join(run)}{end})"
    if text:
        return text
    return ".*/" if pattern.endswith("/") else ".*"


def _normalise(components: list[str]) -> list[str]:
    """Return the components with `**` for what a leading, missing or closing slash means, and none twice in a row."""
    if not components[0]:
        components = components[1:]
    elif len(components) == 1 or components[1:] == [""]:
        components = ["**", *components]
    if not components[-1]:
        components = [*components[:-1], "**"]
    merged: list[str] = []
    for component in components:
        if component != "**" or merged[-1:] != ["**"]:
            merged.append(component)
    return merged


def _class_end(component: str, index: int) -> int:
    """Return where the class that starts at `index` closes; a `]` that comes first is a member."""
    skip = 1 + (component[index : index + 1] in ("!", "^"))
    return component.find("]", index + skip)


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
