"""What one file has to do with a question, as numbers: where each term occurs, and together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from itertools import pairwise

from retinue.core.lean import dataclass
from retinue.models.offline.files import name_parts
from retinue.models.offline.lines import Line, classify, line_stems
from retinue.models.offline.stems import stem, stems_of, subwords
from retinue.models.offline.words import Query

HEAD = 25
"""Prose among the first lines is about the whole file."""

NEAR = 15

TYPE, FUNCTION, VALUE, NESTED, REPEATED = 1.2, 0.65, 0.4, 0.5, 0.2
"""What it says that a name is given to a type, a function, a value; that it is given inside
something else; and that more definitions follow the best one."""
_ROLE = {"type": TYPE, "function": FUNCTION, "value": VALUE}


class Matcher:
    """The terms of one question against stems, remembering every answer: the same few thousand
    words come again and again."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self._known: list[dict[str, float]] = [{} for _ in query.terms]

    def one(self, index: int, parts: Iterable[str]) -> float:
        known, best = self._known[index], 0.0
        for part in parts:
            value = known.get(part)
            if value is None:
                value = known[part] = self.query.terms[index].match(part)
            if value > best:
                best = value
        return best

    def all(self, parts: Iterable[str]) -> list[float]:
        return [self.one(index, parts) for index in range(len(self._known))]

    def names(self, path: str) -> list[float]:
        """How well the path names each term."""
        parts = name_parts(path)
        return [
            max((self.one(index, stems) * weight for stems, weight in parts), default=0.0)
            for index in range(len(self._known))
        ]


@dataclass(slots=True)
class Features:
    """Per term where it occurs; `joint_*` how much of the question one name or line has."""

    defined: list[float]
    prose: list[float]
    head: list[float]
    code: list[float]
    joint_defined: float = 0.0
    joint_prose: float = 0.0
    joint_code: float = 0.0
    near: float = 0.0
    """The same for the best stretch of NEAR lines."""
    exact: float = 0.0
    """1 and more where an exact string is defined, less where it only occurs."""
    best: list[tuple[float, int]] = field(default_factory=list)
    """Lines by how much they say, best first."""


def collect(lines: Mapping[int, str], matcher: Matcher, shares: list[float]) -> Features:
    """`shares` are the weights of the terms, together 1."""
    terms = len(shares)
    found = Features([0.0] * terms, [0.0] * terms, [0.0] * terms, [0.0] * terms)
    others = [0.0] * terms
    matched: list[tuple[int, list[float]]] = []
    exact = [(text, text.replace("::", ".").rpartition(".")[2]) for text in matcher.query.exact]
    for number, text in lines.items():
        line = classify(text)
        literal = max((_literal(whole, name, text, line) for whole, name in exact if whole in text), default=0.0)
        found.exact = max(found.exact, literal)
        if line.role == "import":
            continue
        hits = matcher.all(line_stems(text))
        if not literal and not any(hits):
            continue
        joint = sum(share * hit for share, hit in zip(shares, hits, strict=True))
        worth = joint * 0.5 + literal
        if line.role in _ROLE:
            worth = max(worth, literal + _definition(line, matcher, shares, found, others))
        _occurrence(number, line, hits, joint, found)
        matched.append((number, hits))
        found.best.append((worth, number))
    for index, more in enumerate(others):
        found.defined[index] += REPEATED * math.log1p(more)
    found.near = _nearest(sorted(matched), shares)
    found.best.sort(key=lambda one: (-one[0], one[1]))
    return found


def _nearest(matched: list[tuple[int, list[float]]], shares: list[float]) -> float:
    """How much of the question the best stretch of NEAR lines has; a single term is no stretch."""
    if len(shares) < 2:
        return 0.0
    best = 0.0
    for start, (first, hits) in enumerate(matched):
        together = list(hits)
        for number, more in matched[start + 1 :]:
            if number - first > NEAR:
                break
            together = [max(pair) for pair in zip(together, more, strict=True)]
        if sum(1 for hit in together if hit) > 1:
            best = max(best, sum(share * hit for share, hit in zip(shares, together, strict=True)))
    return best


def _occurrence(number: int, line: Line, hits: list[float], joint: float, found: Features) -> None:
    prose = line.role == "prose"
    for index, hit in enumerate(hits):
        (found.prose if prose else found.code)[index] += hit
        if prose and number <= HEAD:
            found.head[index] += hit
    if sum(1 for hit in hits if hit) > 1 or len(hits) == 1:
        if prose:
            found.joint_prose = max(found.joint_prose, joint)
        else:
            found.joint_code = max(found.joint_code, joint)


def _definition(line: Line, matcher: Matcher, shares: list[float], found: Features, others: list[float]) -> float:
    hits = matcher.all(stems_of(line.name))
    if not any(hits):
        return 0.0
    value = _ROLE[line.role] * (NESTED if line.nested else 1.0)
    focus = 0.4 + 0.6 * _known(line.name, matcher)
    for index, hit in enumerate(hits):
        one = hit * value * focus
        others[index] += min(one, found.defined[index])
        found.defined[index] = max(one, found.defined[index])
    both = sum(share * hit for share, hit in zip(shares, hits, strict=True))
    if sum(1 for hit in hits if hit) > 1 or len(hits) == 1:
        found.joint_defined = max(found.joint_defined, both * value * focus)
    return both * (1 + value) * focus + 0.2


def _known(name: str, matcher: Matcher) -> float:
    """The share of a name's words that the question has."""
    parts = subwords(name)
    known = {i for i, part in enumerate(parts) if any(matcher.all((stem(part),)))}
    for i, (first, second) in enumerate(pairwise(parts)):
        if any(matcher.all((stem(first + second),))):
            known |= {i, i + 1}
    return len(known) / max(1, len(parts))


def _literal(whole: str, name: str, text: str, line: Line) -> float:
    if line.name and line.name == name:
        return 1.5 if line.role in ("type", "function") else 1.0
    if line.role == "import":
        return 0.05
    return 0.1 if line.role == "prose" or " " not in whole else 1.0
