"""A task in plain language, as what can be searched for.

`Query.of` keeps three kinds of things: terms (words with their stems and neighbours), exact
strings (identifiers and quotations, searched as they are) and places (paths the task names).
"""

from __future__ import annotations

import re
from functools import cache

from retinue.core.lean import dataclass
from retinue.models.offline.stems import stem
from retinue.models.offline.vocabulary import FILLERS, GRAMMAR, GROUPS, OTHER_LANGUAGES, PHRASES, STOP, WEAK

MOST_TERMS = 8
LONGEST = 40
NEIGHBOUR = 0.5
"""What a word of the same group counts, compared with the word itself."""

_QUOTED = re.compile(r"`([^`\n]{2,120})`|\"([^\"\n]{2,120})\"|(?<!\w)'([^'\n]{2,120})'(?!\w)")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*(?:\.|::)[A-Za-z_]\w*(?:(?:\.|::)\w+)*|_*[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+"
    r"|[a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b(?:\(\))?"
)
_FOLDERS = re.compile(r"(?<![\w/])(?:\.{0,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*")
"""Paths, which are places first and words second."""
_PATH = re.compile(_FOLDERS.pattern + r"|(?<![\w/.])[\w-]+\.[A-Za-z]{1,5}\b")
_ASIDE = frozenset("from in into on onto without when while so if after before between via using during at".split())
_ENDING = re.compile(r"(?<![\w/.])([\w-]{2,})\.[a-z]{1,4}\b(?![\w(])")
"""`robots.txt` is about robots; the ending is part of the exact string only."""
_TOKEN = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


@dataclass(frozen=True, slots=True)
class Term:
    """One idea of the task. `stems` maps what may stand for it in code to how much it counts."""

    word: str
    stems: dict[str, float]
    weak: bool = False
    aside: bool = False
    """Said after a preposition: the circumstances rather than the thing."""
    joined: tuple[tuple[str, str], ...] = ()
    """Pairs of words that code may write as one: host name, hostname."""
    spelled: str = ""
    """The word with the capitals it was given, where they are more than the first letter."""

    @property
    def root(self) -> str:
        return next(iter(self.stems))

    def match(self, part: str) -> float:
        """How well one stem of a name stands for this idea: 1 for the word itself."""
        found = self.stems.get(part)
        if found is None:
            found = max((weight * _inside(wanted, part) for wanted, weight in self.stems.items()), default=0.0)
        return found


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    terms: tuple[Term, ...] = ()
    exact: tuple[str, ...] = ()
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: str) -> Query:
        text = " ".join(task.split())
        exact = [next(filter(None, found.groups())).strip() for found in _QUOTED.finditer(text)]
        places = [found.group().rstrip(".,;:") for found in _PATH.finditer(text)]
        exact += [found.group() for found in _IDENTIFIER.finditer(text)]
        exact = [item.removesuffix("()") for item in exact]
        places = [place for place in dict.fromkeys(places) if not _is_sentence_end(place)]
        return cls(
            text=text,
            terms=_terms(_words(_FOLDERS.sub(_as_words, text)), _capitals(text)),
            exact=tuple(dict.fromkeys(item for item in exact if _is_exact(item)))[:4],
            places=tuple(places)[:4],
        )


def _capitals(text: str) -> dict[str, str]:
    """Words with capitals inside, such as OpenAPI, by their lower-case form."""
    return {
        word.lower(): word
        for word in re.findall(r"[A-Za-z]+", text)
        if word[1:] not in (word[1:].lower(), word[1:].upper())
    }


def _as_words(place: re.Match[str]) -> str:
    """Of a path in the tree its name; of one elsewhere (`~/.ssh/config`) every part."""
    path = place.group()
    return path.replace("/", " ") if path.startswith("/") else path.rpartition("/")[2]


def _words(text: str) -> list[str]:
    plain = _ENDING.sub(r"\1", text.lower())
    for foreign, english in OTHER_LANGUAGES:
        plain = plain.replace(foreign, f" {english} ")
    for filler in FILLERS:
        plain = plain.replace(filler, " ")
    for phrase, word in PHRASES:
        plain = re.sub(rf"\b{re.escape(phrase)}\b", word, plain)
    words: list[str] = []
    for token in _TOKEN.findall(plain):
        wide = _WIDE.findall(token)
        if wide:
            words += [part for run in wide for part in _pairs(run)]
            token = _WIDE.sub(" ", token)
        words += [part for part in re.split(r"[-'\s]", token) if part]
    return words


def _pairs(run: str) -> list[str]:
    """Text without spaces as overlapping pairs, the usual index unit for such scripts."""
    return [run] if len(run) < 2 else [run[i : i + 2] for i in range(len(run) - 1)]


def _terms(words: list[str], spelled: dict[str, str]) -> tuple[Term, ...]:
    chosen: dict[str, Term] = {}
    aside = False
    for index, word in enumerate(words):
        root = stem(word)
        if word in _ASIDE and chosen:
            aside = True
        if root in chosen or word.isdigit() or len(word) > LONGEST or not (_strong(word) or _weak(word)):
            continue
        neighbour = NEIGHBOUR * (0.6 if _weak(word) else 1.0)
        joined = _joined(words, index)
        stems = {root: 1.0} | dict.fromkeys((stem(first + second) for first, second in joined), 1.0)
        stems |= {other: neighbour for other in _neighbours().get(root) or _cousins(root) if other not in stems}
        chosen[root] = Term(word, stems, _weak(word), aside, joined, spelled.get(word, ""))
    order = list(chosen)
    strongest = sorted(chosen.values(), key=lambda term: (term.weak, term.aside))[:MOST_TERMS]
    return tuple(sorted(strongest, key=lambda term: order.index(term.root)))


def _joined(words: list[str], index: int) -> tuple[tuple[str, str], ...]:
    """The word with the one before it and, if that is no term itself, with the one after it."""
    pairs = []
    if index > 0:
        pairs.append((words[index - 1], words[index]))
    if index + 1 < len(words) and not (_strong(words[index + 1]) or _weak(words[index + 1])):
        pairs.append((words[index], words[index + 1]))
    return tuple(pair for pair in pairs if all(3 <= len(w) <= 10 and w.isascii() and w not in GRAMMAR for w in pair))


def _strong(word: str) -> bool:
    return word not in STOP and word not in WEAK and len(word) > 1


def _weak(word: str) -> bool:
    return word in WEAK and word not in STOP


@cache
def _neighbours() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in GROUPS:
        members = list(dict.fromkeys(stem(word) for word in group.split()))
        for member in members:
            found.setdefault(member, []).extend(other for other in members if other != member)
    return found


def _cousins(root: str) -> list[str]:
    """For a long word that no group has, the one it begins like: `Authentifizierung`."""
    if len(root) < 9:
        return []
    alike = next((known for known in _neighbours() if len(known) >= 7 and root.startswith(known[:7])), None)
    return [alike, *_neighbours()[alike]] if alike else []


def _inside(wanted: str, part: str) -> float:
    """Names written without a break (`cookiejar`, `dupefilters`) still name their parts, and
    words that begin alike are often of one family (`similar`, `similarity`)."""
    if len(wanted) >= 5 and wanted in part:
        return 0.7
    if len(wanted) == 4 and (part.startswith(wanted) or part.endswith(wanted)) and len(part) >= 7:
        return 0.5
    if wanted[:5] != part[:5]:
        return 0.0
    alike = next((i for i, (a, b) in enumerate(zip(wanted, part, strict=False)) if a != b), min(len(wanted), len(part)))
    return 0.6 if alike >= 5 and alike >= 0.7 * max(len(wanted), len(part)) else 0.0


def _is_exact(item: str) -> bool:
    return len(item) > 2 and not re.fullmatch(r"(?:\w\.)+\w", item)


def _is_sentence_end(place: str) -> bool:
    """`done.It` is a missing space, `e.g` an abbreviation: neither is a file."""
    name, _, ending = place.rpartition(".")
    return "/" not in place and (not name or (ending[:1].isupper() and ending.lower() not in ("md", "c", "h")))
