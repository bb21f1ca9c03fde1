"""Texts of which a part is not known before the shell runs, and patterns against them.

A word such as `build/$NAME` is known but for a part. That part is a mark: `HOLE` for what can
become anything, `GLOB` for a file name pattern, which stays in its folder. Patterns of rules know
one wildcard, `*`. Whether a pattern matches such a text has three answers: it does whatever the
marks become, it may, or it cannot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

HOLE = "\0"
GLOB = "\1"
MARKS = (HOLE, GLOB)

NO: Literal[0] = 0
MAYBE: Literal[1] = 1
YES: Literal[2] = 2
Match = Literal[0, 1, 2]


def is_known(text: str) -> bool:
    return HOLE not in text and GLOB not in text


def shown(text: str) -> str:
    """For people."""
    return text.replace(HOLE, "…").replace(GLOB, "*")


def match(pattern: str, text: str) -> Match:
    """Whether `pattern` (in which only `*` is special, and spans everything) matches `text`."""
    known = is_known(text)
    if "*" not in pattern:
        if known:
            return YES if pattern == text else NO
        return MAYBE if _run(pattern, text, open_marks=True) else NO
    if _run(pattern, text, open_marks=False):
        return YES
    return NO if known else MAYBE if _run(pattern, text, open_marks=True) else NO


@lru_cache(maxsize=512)
def _automaton(pattern: str) -> tuple[dict[str, int], int, int]:
    """Where in the pattern each letter stands, as bits; where the stars stand; its length."""
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    letters: dict[str, int] = {}
    stars = 0
    for index, letter in enumerate(pattern):
        if letter == "*":
            stars |= 1 << index
        else:
            letters[letter] = letters.get(letter, 0) | 1 << index
    return letters, stars, len(pattern)


def _spread(at: int, end: int, barred: int) -> int:
    """Where an unknown text can lead: to every later position, but not over a barred letter."""
    if not barred:
        return (end << 1) - (at & -at)
    while True:
        further = at | (at & ~barred & (end - 1)) << 1
        if further == at:
            return at
        at = further


def _run(pattern: str, text: str, *, open_marks: bool) -> bool:
    """Walks all positions in the pattern at once, one bit each. An open mark may have become any
    text, so that every later position is possible; a closed one fits stars only."""
    letters, stars, length = _automaton(pattern)
    end = 1 << length
    at = 1 | (stars & 1) << 1
    for letter in text:
        if open_marks and letter in MARKS:
            at = _spread(at, end, 0 if letter == HOLE else letters.get("/", 0))
            continue
        at = (at & letters.get(letter, 0)) << 1 | at & stars
        at |= (at & stars) << 1
        if not at:
            return False
    return bool(at & end)
