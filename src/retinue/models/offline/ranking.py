"""Which file most likely answers the question: BM25 over three fields.

The fields are a file's path, the names it defines and its text. In each, a word counts more the rarer it is, and every
further occurrence counts less. A path, a name or a line that has several words of the question counts extra, and so
does a file that has all of them. The weights were set on the `dev` and the shared questions of `bench/offline.py`.

The kind of a file and the definition on a line are guessed from the text alone, in any language, and right often
enough to rank by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from retinue.models.offline.question import PATTERNS, VOCABULARY, Query, stem, stems_of, subwords
from retinue.models.offline.search import KEYWORDS, SearchEvidence

FileKind = Literal["source", "facade", "script", "test", "docs", "example", "vendored", "generated", "data", "history"]
DefinitionKind = Literal["type", "function", "value"]

FILE_WEIGHT: dict[FileKind, float] = {
    "source": 1.0, "facade": 0.9, "script": 0.6, "example": 0.35, "data": 0.3, "docs": 0.25, "test": 0.2,
    "vendored": 0.2, "generated": 0.2, "history": 0.1,
}  # fmt: skip
"""How likely a file of a kind is the answer to a question about code. A facade (`__init__`, `index`) re-exports more
often than it does something."""
DEFINITION_WEIGHT: dict[DefinitionKind, float] = {"type": 1.2, "function": 0.65, "value": 0.4}
PATH_WEIGHT, NAME_WEIGHT, TEXT_WEIGHT = 1.6, 1.4, 1.1
SEVERAL_IN_PATH_WEIGHT = 1.1
"""For a path that has several words of the question."""
LINE_WEIGHT = 0.7
"""For the best line of a file."""
EXACT_DEFINITION_WEIGHT = 10.0
HALF_TEXT_LINES = 15.0
"""Matching lines of a file that count half of what any number counts."""

_SOURCE_ENDINGS = frozenset(VOCABULARY["source_endings"].split())
_PROSE_ENDINGS = frozenset(VOCABULARY["prose_endings"].split())
_FACADES = frozenset("__init__ index mod lib __main__ exports external api".split())
_BUILD_FILES = frozenset("setup noxfile build gulpfile fabfile".split())

_TYPE = re.compile(KEYWORDS.partition("|def|")[0])
_VALUE = re.compile("const|let|var")
_KEYWORD = re.compile(
    rf"(?P<indent>\s*)(?:[\w@\[\]()<>*&,.]+\s+){{0,5}}?(?P<word>{KEYWORDS})\s+(?:\([^)]*\)\s*)?"
    r"(?:\w+(?:\.|::))*(?P<name>\w+)"
)
_CALLABLE = re.compile(
    r"(?P<indent>\s*)(?:\w+\s+){0,3}(?:\w+\.)*(?P<name>\w+)\s*[:=]\s*(?:async\s*)?"
    r"(?:function\b|\([^)]*\)[^=]*=>|\w+\s*=>)"
)
_C_FUNCTION = re.compile(r"(?P<indent>\s*)(?P<before>(?:[A-Za-z_][\w<>,.\[\]?]*[\s*&]+)*)(?P<name>[A-Za-z_]\w*)\s*\(")
_CONSTANT = re.compile(r"(?:\s*#\s*define\s+(?P<macro>\w+)|(?P<name>[A-Za-z_]\w*)\s*(?::[^=]+)?=[^=])")
_STATEMENT = re.compile(
    r"\b(?:if|for|while|switch|return|else|elif|catch|except|with|assert|raise|throw|await|yield|not|and|or|in|is|new"
    r"|delete|sizeof|typeof|print|match|case|do|try|lambda|del|from|import)\b"
)
_IMPORT = re.compile(
    r"\s*(?:import\b|from\s+\S+\s+import\b|#\s*include\b|use\s+[\w:{]|require\b|export\s+(?:\*|\{).*from\b"
    r"|(?:const|var|let)\s.*\brequire\()"
)
_PROSE = re.compile(
    r"\s*(?:#(?!\s*(?:define|include|if|el|end|undef|pragma)\b)|//|/\*|\*|r?\"\"\"|'''|--\s|;;|%|<!--)"
    r"|\s*[A-Za-z][^\s={}();<>|\\]*(?:\s+[^\s={}();<>|\\]+){4,}$"
)
"""A comment, or at least five words without the punctuation of code."""


class RankedFile(Struct, frozen=True):
    """`best_lines` are the numbers of lines worth showing, best first."""

    path: str
    score: float
    best_lines: list[int]


class Definition(Struct, frozen=True):
    """The name that a line defines. `nested`: inside something else."""

    kind: DefinitionKind
    name: str
    nested: bool = False


class Ranking:
    """Scores files by the words of one question. Lists have one number for each of its terms."""

    def __init__(self, query: Query, evidence: SearchEvidence) -> None:
        self._query = query
        self._evidence = evidence
        self._asked = asked_kinds(query.text)
        self._stem_matches: list[dict[str, float]] = [{} for _ in query.terms]
        self._paths = {path: self._match_path(path) for path in evidence.paths}
        sources = [path for path in evidence.paths if kind_of(path) in ("source", "facade")] or list(evidence.paths)
        weights: list[float] = []
        self._rarity: list[float] = []
        self._path_rarity: list[float] = []
        for index in range(len(query.terms)):
            rarity = _rarity(evidence.file_counts.get(index, 0), evidence.total_files)
            in_paths = sum(self._paths[path][index] > 0 for path in sources)
            # A word that no file has tells no file from another.
            missing = bool(evidence.file_counts) and not evidence.file_counts.get(index)
            weights.append(0.01 if missing else 0.4 + 0.6 * math.sqrt(rarity))
            self._rarity.append(weights[index] * rarity)
            self._path_rarity.append(weights[index] * _rarity(in_paths, len(sources)))
        self._total_weight = sum(weights) or 1.0
        total = sum(self._rarity) or 1.0
        self._shares = [rarity / total for rarity in self._rarity]
        folders = ["/" + path.removeprefix("./").strip("/") + "/" for path in query.places]
        self._named = [path for path in evidence.paths if any(folder in f"/{path}/" for folder in folders)]

    def rank(self) -> list[RankedFile]:
        """Return the files that have anything to do with the question, best first."""
        files = [self._score(path) for path in self._evidence.paths]
        return sorted((file for file in files if file.score > 0), key=lambda file: (-file.score, file.path))

    def _score(self, path: str) -> RankedFile:
        in_path = self._paths[path]
        names, counts, lines = self._score_lines(self._evidence.lines.get(path, {}))
        score = covered = 0.0
        for index, rarity in enumerate(self._rarity):
            count = max(self._evidence.counts.get(index, {}).get(path, 0), counts[index])
            text = count / (count + HALF_TEXT_LINES)
            name = names[index] / (names[index] + 1.0)
            score += PATH_WEIGHT * in_path[index] * self._path_rarity[index]
            score += (NAME_WEIGHT * name + TEXT_WEIGHT * text) * rarity
            covered += self._shares[index] * min(1.0, max(in_path[index], names[index], count / 2))
        if len(in_path) - in_path.count(0.0) > 1:
            score += SEVERAL_IN_PATH_WEIGHT * _dot(in_path, self._path_rarity)
        score *= (0.5 + 0.5 * covered) / self._total_weight
        if lines:
            score += LINE_WEIGHT * lines[0][0]
        if self._named and path not in self._named:
            score *= 0.1
        score *= _file_weight(path, self._asked)
        return RankedFile(path, score, [number for _, number in lines])

    def _score_lines(self, lines: Mapping[int, str]) -> tuple[list[float], list[float], list[tuple[float, int]]]:
        """Return how well the names that lines define match each term, how often text does, and the matching lines
        with their worth, best first."""
        names = [0.0] * len(self._rarity)
        counts = names.copy()
        scored: list[tuple[float, int]] = []
        for number, text in lines.items():
            hits = self._match(stems_of(text))
            exact = [item for item in self._query.exact if item in text]
            if _IMPORT.match(text) or not (exact or any(hits)):
                continue
            counts = [count + hit for count, hit in zip(counts, hits, strict=True)]
            worth = 0.5 * _dot(self._shares, hits) + 0.1 * bool(exact)
            definition = definition_of(text)
            if definition is not None:
                name_hits = self._match(stems_of(definition.name))
                weight = self._definition_weight(definition)
                names = [max(name, hit * weight) for name, hit in zip(names, name_hits, strict=True)]
                worth = max(worth, _dot(self._shares, name_hits) * (1.0 + weight))
                if any(definition.name == item.replace("::", ".").rpartition(".")[2] for item in exact):
                    worth += EXACT_DEFINITION_WEIGHT
            scored.append((worth, number))
        return names, counts, sorted(scored, key=lambda line: (-line[0], line[1]))

    def _definition_weight(self, definition: Definition) -> float:
        """A name that has other words besides those of the question is further from it."""
        words = subwords(definition.name)
        matching = sum(any(self._match((stem(word),))) for word in words)
        weight = DEFINITION_WEIGHT[definition.kind] * (0.5 if definition.nested else 1.0)
        return weight * (0.4 + 0.6 * matching / max(1, len(words)))

    def _match(self, stems: Iterable[str]) -> list[float]:
        """Return for each term how well the best of some stems stands for it."""
        hits = []
        for term, matches in zip(self._query.terms, self._stem_matches, strict=True):
            best = 0.0
            for name_stem in stems:
                if name_stem not in matches:
                    matches[name_stem] = term.match(name_stem)
                best = max(best, matches[name_stem])
            hits.append(best)
        return hits

    def _match_path(self, path: str) -> list[float]:
        """Return how well a path names each term: its name most, a folder less the farther above."""
        *folders, name = path.split("/")
        best = [0.0] * len(self._query.terms)
        for component, weight in zip(
            [name.split(".")[0] or name, *reversed(folders)], (1.0, 0.6, 0.35, 0.2), strict=False
        ):
            hits = self._match(stems_of(component))
            best = [max(one, weight * hit) for one, hit in zip(best, hits, strict=True)]
        return best


def _dot(weights: list[float], hits: list[float]) -> float:
    return sum(weight * hit for weight, hit in zip(weights, hits, strict=True))


def _rarity(having: int, total: int) -> float:
    """Return BM25's inverse document frequency, from 1 for one file towards 0.1 for all."""
    total = max(total, 10)
    return max(0.1, min(1.0, math.log((total + 1) / (having + 0.5)) / math.log(total + 1)))


def asked_kinds(task: str) -> frozenset[FileKind]:
    """Return the kinds of files that a task is about."""
    return frozenset(kind for kind, asks in VOCABULARY["asked"].items() if re.search(asks, task, re.IGNORECASE))


def _file_weight(path: str, asked: frozenset[FileKind]) -> float:
    """Return how likely this file is the answer, compared with source, from its kind alone."""
    kind = kind_of(path)
    if kind in asked:
        return 1.0
    # Someone who asks for tests does not want source.
    return FILE_WEIGHT[kind] * (0.05 if asked & {"test", "docs", "example", "history", "vendored"} else 1.0)


@lru_cache(maxsize=20_000)
def kind_of(path: str) -> FileKind:
    *folders, name = path.replace("\\", "/").split("/")
    base, dot, ending = name.rpartition(".")
    base = base or name
    source = bool(dot) and ending.lower() in _SOURCE_ENDINGS
    if PATTERNS["generated"].search(name) or any(folder.endswith((".egg-info", ".dist-info")) for folder in folders):
        return "generated"
    if PATTERNS["history"].fullmatch(base) and not source:
        return "history"
    kind: FileKind
    lowered = {folder.lower() for folder in folders}
    for kind, names in VOCABULARY["folders"].items():
        if not lowered.isdisjoint(names.split()):
            if kind == "docs" and source:
                return "script"
            if kind != "generated" or not source or "src" not in folders:
                return kind
    if PATTERNS["test_name"].fullmatch(base):
        return "test"
    if not dot or (base in _BUILD_FILES and source and not folders):
        return "script"
    if source:
        return "facade" if base in _FACADES else "source"
    return "docs" if ending.lower() in _PROSE_ENDINGS else "data"


@lru_cache(maxsize=50_000)
def definition_of(text: str) -> Definition | None:
    """Return what a line defines: its first 300 characters show it."""
    text = text[:300].rstrip()
    if _IMPORT.match(text) or _PROSE.match(text):
        return None
    if match := _CALLABLE.match(text):
        return Definition("function", match["name"], _is_indented(match))
    if match := _KEYWORD.match(text):
        if not _VALUE.fullmatch(match["word"]):
            kind: DefinitionKind = "type" if _TYPE.fullmatch(match["word"]) else "function"
            return Definition(kind, match["name"], _is_indented(match))
        return None if _is_indented(match) else Definition("value", match["name"])
    if match := _CONSTANT.match(text):
        return Definition("value", match["macro"] or match["name"])
    match = _C_FUNCTION.match(text)
    if match is None or _STATEMENT.search(match["before"] + match["name"]):
        return None
    # `name(args) {` anywhere; `type name(args)` only from the left edge; a call never.
    at_edge = match["before"] and not match["indent"] and not text.endswith(";") and "=" not in text
    return Definition("function", match["name"], _is_indented(match)) if at_edge or text.endswith("{") else None


def _is_indented(match: re.Match[str]) -> bool:
    return len(match["indent"].expandtabs(4)) >= 2
