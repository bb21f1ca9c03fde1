"""Glob patterns on relative paths, as people write them for find and grep.

`*` and `?` stay within a name, `**` spans folders, `[a-z]` and `{a,b}` work, a leading `!`
excludes. A pattern without a slash is matched against names at any depth; one with a slash
against the path from where the search starts. A pattern without capitals ignores case.
"""

from __future__ import annotations

import re

from retinue.core.lean import dataclass
from retinue.tools.arguments import ToolError

_BRACES = 64
"""Alternatives a pattern may unfold to; more is a mistake or an attack."""


@dataclass(frozen=True, slots=True)
class Glob:
    """Matches a path with `/` between its parts and none at either end."""

    wanted: tuple[re.Pattern[str], ...]
    unwanted: tuple[re.Pattern[str], ...]
    names: tuple[str, ...]
    """Globs for the last component alone, implied by `wanted`; empty when it may be any."""
    hidden: bool
    """A component that starts with a dot is asked for."""

    def __call__(self, path: str) -> bool:
        if self.wanted and not any(pattern.fullmatch(path) for pattern in self.wanted):
            return False
        return not any(pattern.fullmatch(path) for pattern in self.unwanted)


def compile_glob(text: str) -> Glob:
    """One or several patterns, separated by commas. Raise ToolError for what is no pattern."""
    wanted: list[str] = []
    unwanted: list[str] = []
    for part in _split(text, ","):
        pattern = part.strip()
        excluded = pattern.startswith("!")
        pattern = _tidy(pattern.removeprefix("!"))
        if pattern:
            (unwanted if excluded else wanted).extend(_unfold(pattern))
    if not wanted and not unwanted:
        raise ToolError(f"{text!r} is not a pattern. Send a glob such as *.py or src/**/test_*.")
    names = [pattern.rsplit("/", 1)[-1] for pattern in wanted]
    return Glob(
        tuple(_regex(pattern) for pattern in wanted),
        tuple(_regex(pattern) for pattern in unwanted),
        () if any(name == "**" for name in names) else tuple(dict.fromkeys(names)),
        any(part.startswith(".") for pattern in wanted for part in pattern.split("/")),
    )


def _tidy(pattern: str) -> str:
    while pattern.startswith("./"):
        pattern = pattern[2:]
    return re.sub(r"/{2,}", "/", pattern)


def _split(text: str, separator: str) -> list[str]:
    """At `separator`, but not inside braces or brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth = max(0, depth - 1)
        elif character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _unfold(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`; unbalanced braces are plain characters."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(waiting) + len(done) > _BRACES:
            raise ToolError(f"{pattern!r} has too many alternatives in braces. Use a simpler pattern.")
        current = waiting.pop()
        match = re.search(r"\{([^{}]*)\}", current)
        if match is None:
            done.append(current)
            continue
        for option in reversed(match.group(1).split(",")):
            waiting.append(current[: match.start()] + option + current[match.end() :])
    return done


def _regex(pattern: str) -> re.Pattern[str]:
    """Everything before the last `**` or `*` is matched leftmost and never reconsidered (the
    atomic groups), which is right for globs and keeps any pattern linear."""
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        parts = ["**", *parts]
    chunks: list[str] = [""]
    for part in parts:
        if part == "**":
            chunks.append("")
        else:
            chunks[-1] += _part(part) + "/"
    first, middle, last = chunks[0], chunks[1:-1], chunks[-1]
    text = first + "".join(f"(?>(?:[^/]+/)*?{chunk})" for chunk in middle if chunk)
    if len(chunks) == 1:
        text = first[:-1]
    else:
        text += f"(?:[^/]+/)*{last[:-1]}" if last else ".+"
    flags = re.DOTALL if any(character.isupper() for character in pattern) else re.DOTALL | re.IGNORECASE
    return re.compile(text, flags)


def _part(part: str) -> str:
    """One component. `chunks` are its pieces between stars, each of fixed length."""
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
        elif character == "\\" and index < len(part):
            chunks[-1] += re.escape(part[index])
            index += 1
        else:
            chunks[-1] += re.escape(character)
    if len(chunks) == 1:
        return chunks[0]
    middle = "".join(f"(?>[^/]*?{chunk})" for chunk in chunks[1:-1] if chunk)
    return f"{chunks[0]}{middle}[^/]*{chunks[-1]}"


def _class_end(part: str, index: int) -> int:
    """Where the class that starts at `index` closes; a `]` that comes first is a member."""
    skip = 1 + (part[index : index + 1] in ("!", "^"))
    return part.find("]", index + skip)


def _class(body: str) -> str:
    negated = body[:1] in ("!", "^")
    members = body[1:] if negated else body
    safe = re.sub(r"([\\\]\[^&~|])", r"\\\1", members)
    safe = re.sub(r"^-|-$", r"\\-", safe)  # at an end it is no range, whatever stands beside it
    try:
        re.compile(f"[{safe}]")
    except re.error:  # a range that runs backwards: its characters one by one
        safe = re.escape(members)
    return f"[^/{safe}]" if negated else f"[{safe}]"
