"""Which file most likely answers the question.

A file is judged by where the words of the question occur in it: in its name and folders, in
the names it defines, in its prose, in its code. Rare words count more than common ones, files
that have all the words more than files that have one often, and words side by side in one name
or line most of all. The weights were set on questions about a dozen packages and checked on
others (`bench/offline.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field

from retinue.core.lean import dataclass
from retinue.models.offline.evidence import Evidence
from retinue.models.offline.features import Features, Matcher, collect
from retinue.models.offline.files import asked_kinds, kind_of, weight_of
from retinue.models.offline.words import Query

USUAL_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each place says. `*_half` is the amount that counts half; `*_rarity` how strongly
    common words are discounted there."""

    name: float = 1.6
    name_rarity: float = 1.2
    defined: float = 1.4
    defined_half: float = 1.0
    defined_rarity: float = 0.65
    prose: float = 0.25
    prose_half: float = 4.0
    head: float = 0.1
    code: float = 0.9
    code_half: float = 15.0
    length: float = 0.4
    rarity: float = 0.8
    joint_name: float = 1.1
    joint_defined: float = 0.3
    joint_prose: float = 0.2
    joint_code: float = 0.1
    near: float = 0.15
    coverage: float = 0.5
    exact: float = 3.0
    weak: float = 0.55
    aside: float = 0.65


@dataclass(frozen=True, slots=True)
class Ranked:
    path: str
    score: float
    best: list[tuple[float, int]] = field(default_factory=list)
    """Lines worth reading, with how much each says, best first."""


class Ranking:
    """What holds for a whole search; `rank` applies it to files."""

    def __init__(self, query: Query, evidence: Evidence, weights: Weights | None = None) -> None:
        self.evidence = evidence
        self.query = query
        self.w = w = weights or Weights()
        self.matcher = Matcher(query)
        self.asked = asked_kinds(query.text)
        self.places = _Places(query, evidence)
        total = max(evidence.total_files, 10)
        self.rarity = [_rarity(evidence.document_frequency.get(i, 0), total) for i in range(len(query.terms))]
        self.weight = [self._weight(index) for index in range(len(query.terms))]
        self.named = {path: self.matcher.names(path) for path in evidence.paths}
        sources = [path for path in evidence.paths if kind_of(path) in ("source", "facade")] or list(evidence.paths)
        self.name_rarity = [
            _rarity(sum(1 for path in sources if self.named[path][i]), max(10, len(sources)))
            for i in range(len(query.terms))
        ]
        mass = sum(a * b**w.rarity for a, b in zip(self.weight, self.rarity, strict=True)) or 1.0
        self.shares = [a * b**w.rarity / mass for a, b in zip(self.weight, self.rarity, strict=True)]

    def rank(self, paths: Iterable[str] | None = None) -> list[Ranked]:
        """The files that have anything to do with the question, best first."""
        counted = {path for counts in self.evidence.counts.values() for path in counts}
        ranked = [
            self.score(path)
            for path in (self.evidence.paths if paths is None else paths)
            if path in counted or path in self.evidence.lines or any(self.named[path]) or path in self.places.files
        ]
        return sorted((one for one in ranked if one.score > 0), key=lambda one: (-one.score, one.path))

    def score(self, path: str) -> Ranked:
        w, named = self.w, self.named[path]
        found = collect(self.evidence.lines.get(path, {}), self.matcher, self.shares)
        full = sum(self.weight) or 1.0
        total = covered = 0.0
        for index, weight in enumerate(self.weight):
            count = max(self.evidence.counts.get(index, {}).get(path, 0), found.code[index] + found.prose[index])
            total += weight * self._term(path, index, found, count) / full
            covered += self.shares[index] * min(1.0, max(named[index], found.defined[index], count / 2))
        if sum(1 for one in named if one) > 1:
            parts = zip(self.weight, named, self.name_rarity, strict=True)
            total += w.joint_name * sum(a * b * c for a, b, c in parts) / full
        total += w.joint_defined * found.joint_defined
        total += w.joint_prose * found.joint_prose + w.joint_code * found.joint_code + w.near * found.near
        total *= (1 - w.coverage) + w.coverage * covered
        total += w.exact * found.exact
        return Ranked(path, total * weight_of(path, self.asked) * self.places.factor(path), found.best)

    def _weight(self, index: int) -> float:
        """How much the question hangs on a term. A word that no file has tells none from another."""
        term, counted = self.query.terms[index], self.evidence.document_frequency
        if counted and not counted.get(index):
            return 0.05
        if not self._in_source(index):
            return 0.15
        said = (self.w.weak if term.weak else 1.0) * (self.w.aside if term.aside else 1.0)
        return said * (0.4 + 0.6 * math.sqrt(self.rarity[index]))

    def _in_source(self, index: int) -> bool:
        """Whether any file of a likely kind has the term, as far as it was counted."""
        having = self.evidence.counts.get(index)
        if not having or self.asked:
            return True
        return any(kind_of(path) in ("source", "facade") for path in having)

    def _term(self, path: str, index: int, found: Features, count: float) -> float:
        w = self.w
        length = self.evidence.length.get(path, USUAL_LENGTH)
        half = w.code_half * (1 - w.length + w.length * length / USUAL_LENGTH)
        occurs = w.code * _share(count, half) + w.prose * _share(found.prose[index], w.prose_half)
        value: float = (
            w.name * self.named[path][index] * self.name_rarity[index] ** w.name_rarity
            + w.defined * _share(found.defined[index], w.defined_half) * self.rarity[index] ** w.defined_rarity
            + (occurs + w.head * min(1.0, found.head[index])) * self.rarity[index] ** w.rarity
        )
        return value


class _Places:
    """Paths that the task names: a folder keeps the search inside, a source file comes first.
    A bare name that several files or no source file have is just a word (`package.json`)."""

    def __init__(self, query: Query, evidence: Evidence) -> None:
        named = [place.removeprefix("./").strip("/") for place in query.places]
        self.files: set[str] = set()
        for place in filter(None, named):
            having = [path for path in evidence.paths if path == place or path.endswith(f"/{place}")]
            if "/" in place or (len(having) == 1 and kind_of(having[0]) in ("source", "facade")):
                self.files.update(having)
        self.folders = [place for place in named if any(_within(path, place) for path in evidence.paths)]

    def factor(self, path: str) -> float:
        if path in self.files:
            return 4.0
        return 1.0 if not self.folders or any(_within(path, place) for place in self.folders) else 0.1


def _within(path: str, folder: str) -> bool:
    return f"/{folder}/" in f"/{path}"


def _rarity(frequency: int, total: int) -> float:
    """1 for what one file has, towards 0.1 for what every file has."""
    if not frequency:
        return 1.0
    return max(0.1, min(1.0, math.log((total + 1) / (frequency + 0.5)) / math.log(total + 1)))


def _share(value: float, half: float) -> float:
    return value / (value + half) if value else 0.0
