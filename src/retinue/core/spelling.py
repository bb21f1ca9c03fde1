"""How close two words are: the name that a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def fold(word: str) -> str:
    """Return a word without case and separators: `Max-Turns`, `max_turns` and `maxTurns` are equal."""
    return "".join(char for char in word.casefold() if char.isalnum())


def distance(word: str, other: str, limit: int = 2) -> int:
    """Return the number of insertions, deletions, replacements and swaps of neighbours; at most `limit` + 1."""
    if abs(len(word) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and word[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `word` was probably meant to be; None when two are equally likely."""
    folded = fold(word)
    if not folded:
        return None
    # Short words are easily some other word: one slip up to five letters, none up to three.
    limit = 2
    if len(folded) <= 5:
        limit = 1
    if len(folded) <= 3:
        limit = 0
    least = limit
    best: dict[str, str] = {}
    for candidate in candidates:
        other = fold(candidate)
        steps = distance(folded, other, limit)
        if steps < least:
            least = steps
            best.clear()
        if steps == least:
            best.setdefault(other, candidate)
    if len(best) != 1:
        return None
    return best.popitem()[1]
