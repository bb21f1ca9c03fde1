"""Which file most likely answers the question: BM25 over three fields.

The fields are a file's path, the names it defines and its text. In each, a word counts more the
rarer it is, and every further occurrence counts less. A line or name that has several words of
the question counts extra, and so does a file that has all of them. The weights were set on the
`dev` and the shared questions of `bench/offline.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from retinue.models.offline.question import Query, stem, stems_of, subwords
from retinue.models.offline.search import SearchEvidence
from retinue.models.offline.source import FACADES, Line, asked_kinds, kind_of, line_of, weight_of

PATH, DEFINED, TEXT = 1.6, 1.4, 1.1
"""What each field counts."""
SEVERAL_IN_PATH, SEVERAL_IN_NAME, SEVERAL_IN_LINE = 1.1, 0.3, 0.3
"""What it counts that one path, one defined name or one line has several words of the question."""
TEXT_HALF = 15.0
"""Matching lines, in a file of usual length, that count half of what any number counts."""
USUAL_LENGTH = 300
EXACT = 3.0
WEAK = 0.55
KIND = {"type": 1.2, "function": 0.65, "value": 0.4}
"""What a definition counts."""


class Ranked(Struct, frozen=True):
    path: str
    score: float
    best: list[tuple[float, int]] = field(default_factory=list)
    """Lines worth showing, with how much each says, best first."""


class FileMatches(Struct):
    """What the lines of one file have: per term, and of several terms at once."""

    defined: list[float]
    text: list[float]
    in_name: float = 0.0
    in_line: float = 0.0
    exact: float = 0.0
    best: list[tuple[float, int]] = field(default_factory=list)


class Ranking:
    """What holds for a whole search; `rank` applies it to every file."""

    def __init__(self, query: Query, evidence: SearchEvidence) -> None:
        self.query = query
        self.evidence = evidence
        self.asked = asked_kinds(query.text)
        self._matches: list[dict[str, float]] = [{} for _ in query.terms]
        self.paths = {path: self._match_path(path) for path in evidence.paths}
        sources = [path for path in evidence.paths if kind_of(path) in ("source", "facade")] or list(evidence.paths)
        self.rarity: list[float] = []
        self.path_rarity: list[float] = []
        weights = []
        for index in range(len(query.terms)):
            having = sum(bool(self.paths[path][index]) for path in sources)
            self.path_rarity.append(_rarity(having, len(sources)))
            self.rarity.append(_rarity(evidence.having.get(index, 0), evidence.total_files))
            weights.append(self._weight(index))
        total = sum(weights) or 1.0
        self.weights = [weight / total for weight in weights]
        mass = _dot(self.weights, self.rarity) or 1.0
        self.shares = [weight * rarity / mass for weight, rarity in zip(self.weights, self.rarity, strict=True)]
        self.named: set[str] = set()
        for place in query.places:
            folder = "/" + place.removeprefix("./").strip("/") + "/"
            self.named.update(path for path in evidence.paths if folder in f"/{path}/")

    def rank(self) -> list[Ranked]:
        """Return the files that have anything to do with the question, best first."""
        ranked = []
        for path in self.evidence.paths:
            one = self._score(path)
            if one.score > 0:
                ranked.append(one)
        return sorted(ranked, key=lambda one: (-one.score, one.path))

    def _weight(self, index: int) -> float:
        if self.evidence.having and not self.evidence.having.get(index):
            # A word that no file has tells none from another.
            return 0.01
        said = 1.0
        if self.query.terms[index].weak:
            said = WEAK
        return said * (0.4 + 0.6 * math.sqrt(self.rarity[index]))

    def _score(self, path: str) -> Ranked:
        in_path = self.paths[path]
        found = self._look_at(self.evidence.lines.get(path, {}))
        half = TEXT_HALF * (0.6 + 0.4 * self.evidence.length.get(path, USUAL_LENGTH) / USUAL_LENGTH)
        score = covered = 0.0
        for index, weight in enumerate(self.weights):
            count = max(self.evidence.counts.get(index, {}).get(path, 0), found.text[index])
            score += weight * PATH * in_path[index] * self.path_rarity[index]
            score += weight * DEFINED * _saturate(found.defined[index], 1.0) * self.rarity[index]
            score += weight * TEXT * _saturate(count, half) * self.rarity[index]
            covered += self.shares[index] * min(1.0, max(in_path[index], found.defined[index], count / 2))
        if len(in_path) - in_path.count(0.0) > 1:
            hits = zip(self.weights, in_path, self.path_rarity, strict=True)
            score += SEVERAL_IN_PATH * sum(weight * hit * rarity for weight, hit, rarity in hits)
        score += SEVERAL_IN_NAME * found.in_name + SEVERAL_IN_LINE * found.in_line
        score = score * (0.5 + 0.5 * covered) + EXACT * found.exact
        if path in self.named:
            score += 0.1
        elif self.named:
            score *= 0.1
        return Ranked(path, score * weight_of(path, self.asked), found.best)

    def _look_at(self, lines: Mapping[int, str]) -> FileMatches:
        count = len(self.weights)
        found = FileMatches([0.0] * count, [0.0] * count)
        for number, text in lines.items():
            line = line_of(text)
            exact = 0.0
            for wanted in self.query.exact:
                if wanted in text:
                    exact = max(exact, _exactness(wanted, line))
            found.exact = max(found.exact, exact)
            hits = self._match(stems_of(text))
            if line.kind == "import" or not (exact or any(hits)):
                continue
            found.text = [total + hit for total, hit in zip(found.text, hits, strict=True)]
            together = self._together(hits)
            found.in_line = max(found.in_line, together)
            worth = max(together * 0.5, self._look_at_definition(line, found))
            found.best.append((worth + exact, number))
        found.best.sort(key=lambda one: (-one[0], one[1]))
        return found

    def _look_at_definition(self, line: Line, found: FileMatches) -> float:
        hits = self._match(stems_of(line.name)) if line.name else []
        if not any(hits):
            return 0.0
        value = KIND[line.kind] * (0.5 if line.nested else 1.0)
        parts = subwords(line.name)
        known = sum(any(self._match((stem(part),))) for part in parts)
        value *= 0.4 + 0.6 * known / max(1, len(parts))
        found.defined = [max(one, hit * value) for one, hit in zip(found.defined, hits, strict=True)]
        together = self._together(hits)
        found.in_name = max(found.in_name, together * value)
        return together * (1 + value) + 0.2

    def _together(self, hits: list[float]) -> float:
        return _dot(self.shares, hits)

    def _match(self, parts: Iterable[str]) -> list[float]:
        """Return for each term how well the best of some stems stands for it."""
        found = []
        for term, known in zip(self.query.terms, self._matches, strict=True):
            best = 0.0
            for part in parts:
                if part not in known:
                    known[part] = term.match(part)
                best = max(best, known[part])
            found.append(best)
        return found

    def _match_path(self, path: str) -> list[float]:
        """Return how well a path names each term: its name most, a folder less the farther above.
        A facade (`auth/__init__.py`) is named by its folder."""
        *folders, name = path.split("/")
        base = name.split(".")[0] or name
        weights = (0.3, 0.9, 0.4, 0.2) if base in FACADES and folders else (1.0, 0.6, 0.35, 0.2)
        best = [0.0] * len(self.query.terms)
        for part, weight in zip([base, *reversed(folders)], weights, strict=False):
            best = [max(one, weight * hit) for one, hit in zip(best, self._match(stems_of(part)), strict=True)]
        return best


def _dot(left: list[float], right: list[float]) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


def _exactness(wanted: str, line: Line) -> float:
    """Return 1 and more where an exact string is defined, less where it only occurs."""
    if line.name and line.name == wanted.replace("::", ".").rpartition(".")[2]:
        return 1.5 if line.kind in ("type", "function") else 1.0
    if line.kind == "import":
        return 0.05
    return 0.1 if line.kind == "prose" or " " not in wanted else 1.0


def _rarity(having: int, total: int) -> float:
    """Return BM25's inverse document frequency, from 1 for one file towards 0.1 for all."""
    total = max(total, 10)
    if not having:
        return 1.0
    return max(0.1, min(1.0, math.log((total + 1) / (having + 0.5)) / math.log(total + 1)))


def _saturate(value: float, half: float) -> float:
    if value:
        return value / (value + half)
    return 0.0
