"""What could be meant by what stands before the cursor: a command, an agent, a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["command", "mention"]
MOST = 8
_COMMAND = re.compile(r"/([a-z-]*)")
_MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """`word` is what was typed of it, `start` where it begins in the line. `first` says that the
    whole text begins here: only there an agent can be addressed."""

    kind: Kind
    word: str
    start: int
    first: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """`text` replaces the word, its sign included; `note` is beside it in the list."""

    text: str
    note: str = ""


def wanted(line: str, column: int, *, first_line: bool) -> Wanted | None:
    """What the cursor at `column` of `line` stands behind; None for plain words."""
    before = line[:column]
    found = _COMMAND.fullmatch(before)
    if found and first_line:
        return Wanted("command", found[1], 0, first=True)
    mention = _MENTION.search(before)
    if mention is None:
        return None
    return Wanted("mention", mention[1], mention.start(), first=first_line and mention.start() == 0)


def rank(word: str, names: Iterable[str], most: int = MOST) -> list[str]:
    """The names that fit, best first: those that begin with it, whose last part does, that have
    it somewhere, that have its letters in order. Shorter ones go first."""
    if not word:
        return sorted(names, key=lambda name: (name.count("/"), name))[:most]
    low = word.lower()
    scored = [(score, len(name), name) for name in names if (score := _score(low, name.lower())) is not None]
    return [name for _, _, name in sorted(scored)[:most]]


def _score(word: str, name: str) -> int | None:
    if name.startswith(word):
        return 0
    if name.rpartition("/")[2].startswith(word):
        return 1
    if word in name:
        return 2
    letters = iter(name)
    return 3 if all(sign in letters for sign in word) else None


@dataclass(slots=True)
class Choices:
    """The list that is open, and what is chosen in it."""

    found: Sequence[Candidate] = ()
    place: Wanted | None = None
    at: int = 0

    @property
    def open(self) -> bool:
        return bool(self.found)

    @property
    def chosen(self) -> Candidate | None:
        return self.found[self.at] if self.found else None

    def show(self, place: Wanted, found: Sequence[Candidate]) -> None:
        kept = self.chosen
        self.place, self.found = place, found
        self.at = found.index(kept) if kept in found else 0

    def move(self, step: int) -> None:
        if self.found:
            self.at = (self.at + step) % len(self.found)

    def close(self) -> None:
        self.found, self.place, self.at = (), None, 0
