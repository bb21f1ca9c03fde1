"""Whether a body says anything a model could follow."""

from __future__ import annotations

import re

_HEADING = re.compile(r"^\s{0,3}#{1,6}(?:\s.*)?$|^\s*(?:-{3,}|\*{3,}|={3,}|`{3,}.*)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{[^{}\n]{0,200}\}\}|\b(?:TODO|TBD|FIXME|lorem ipsum)\b.*", re.IGNORECASE)
ENOUGH_LETTERS = 12
"""Counted in letters, not words, so that Chinese or Japanese bodies are judged alike."""


def has_instructions(body: str) -> bool:
    """False for a body that is empty or only headings, rules, comments and placeholders."""
    if len(body) > 20_000:
        return True
    rest = _PLACEHOLDER.sub("", _HEADING.sub("", _without_comments(body)))
    return sum(char.isalpha() for char in rest) >= ENOUGH_LETTERS


def _without_comments(body: str) -> str:
    parts: list[str] = []
    at = 0
    while (start := body.find("<!--", at)) >= 0:
        end = body.find("-->", start)
        if end < 0:
            break
        parts.append(body[at:start])
        at = end + 3
    return "".join([*parts, body[at:]])
