"""Whether a command may be, or start, what a pattern is about, though it is not called so.

A program that nobody here knows may carry out its words, a text among them, or a variable that is
set for it. None of that is certain, so the answer is never more than "maybe", which asks.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from functools import lru_cache

from retinue.domain.lean import dataclass
from retinue.guard.permissions.forms import denied_forms, loose_forms, tight
from retinue.guard.permissions.marks import GLOB, HOLE, NO, Match, is_known, match
from retinue.guard.permissions.shell import analyse
from retinue.guard.permissions.shell.commands import SPEAKING, WRITERS, edited, is_reader
from retinue.guard.permissions.shell.step import Step
from retinue.guard.permissions.shell.wrappers import CARRIERS

_MOST_WORDS = 16
_DEEPEST = 4
_WORD = re.compile(r"[\w.,:=/+@%-]*")
"""It can name one program at most, and that was looked at."""
_OPTION = re.compile(r"(?:[A-Za-z_]\w*|--?[\w-]+)=(?:exec=)?|-\w")
_ESCAPE = re.compile(r"\\\w")


def match_command(pattern: str, text: str) -> Match:
    """`*` spans anything; ` *` or `:*` at the end also matches nothing, at the end of a word."""
    return max(match(each, text) for each in _patterns(pattern))


@lru_cache(maxsize=512)
def _patterns(pattern: str) -> tuple[str, ...]:
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    patterns = [pattern]
    if any(sign in pattern for sign in "'\"\\"):
        with contextlib.suppress(ValueError):
            patterns.append(" ".join(shlex.split(pattern)))
    return tuple(dict.fromkeys([*patterns, *(each[:-2] for each in patterns if each.endswith(" *"))]))


@dataclass(frozen=True, slots=True)
class Hints:
    """What of a command can hide another one, whatever the pattern: found out once."""

    loose: tuple[str, ...] = ()
    """How it may be called if its first options are left out."""
    texts: tuple[str, ...] = ()
    """What it may carry out as the text of a command."""
    words: tuple[str, ...] = ()
    """Its words, any of which may be the start of a command."""
    reads_all: bool = False
    """It carries out another language, and may get to see all of the command line."""


_NOTHING = Hints()


def hints(step: Step) -> Hints:
    loose = loose_forms(step)
    given = tuple(given for _, given in step.assigned)
    if step.opaque:
        return Hints(loose, given, reads_all=True)
    if step.name in SPEAKING or step.name == "git" or is_reader(step) or edited(step) is not None:
        return Hints(loose, given) if loose or given else _NOTHING
    if step.inner and step.name in CARRIERS:
        return Hints(loose, given)  # what it starts has hints of its own
    texts = (*given, *(word for word in step.words[1:] if _is_text(word)))
    return Hints(loose, texts, () if step.name in WRITERS else step.words)


def may_be_meant(pattern: str, found: Hints, text: str, depth: int = 0) -> bool:
    """`text` is all of the command line."""
    if found is _NOTHING:
        return False
    if any(match_command(pattern, form) for form in found.loose):
        return True
    wanted = _letters(pattern)
    if found.reads_all and wanted and wanted <= _letters(text):
        return True
    if found.words and _starts(pattern, found.words):
        return True
    return any(_in_text(pattern, wanted, each, depth) for each in found.texts)


def _in_text(pattern: str, wanted: frozenset[str], text: str, depth: int) -> bool:
    """Whether a text that may be carried out names the command, or could hide it."""
    if (wanted and wanted <= _letters(text)) or depth > _DEEPEST:
        return True
    if _WORD.fullmatch(text):
        return False
    whole = text.replace(HOLE, " ").replace(GLOB, "*")
    option = _OPTION.match(whole)
    return any(_in_code(pattern, code, depth) for code in ((whole, whole[option.end() :]) if option else (whole,)))


def _in_code(pattern: str, code: str, depth: int) -> bool:
    script = analyse(code)
    steps = script.all_steps()
    if script.doubts and ("`" in code or "$(" in code or any(step.name in CARRIERS or step.opaque for step in steps)):
        return True
    return any(
        any(match_command(pattern, form) for form in denied_forms(step))
        or may_be_meant(pattern, hints(step), code, depth + 1)
        for step in steps
    )


@lru_cache(maxsize=512)
def _letters(text: str) -> frozenset[str]:
    """Its words; `\\trm` may be a tab and rm."""
    found = re.findall(r"\w+", text)
    return frozenset(found + re.findall(r"\w+", _ESCAPE.sub(" ", text)) if "\\" in text else found)


def _is_text(word: str) -> bool:
    return any(sign.isspace() for sign in word) or (word.startswith("--") and "=" in word)


def _starts(pattern: str, words: tuple[str, ...]) -> bool:
    """Whether an unknown program might start it: the rest of its words, from any of them on. A
    word of which nothing is known counts only where the pattern says more than a name."""
    first, _, rest = pattern.partition(" ")
    first = first.removesuffix(":*")
    for at, word in enumerate(words[1 : _MOST_WORDS + 1], 1):
        if word.startswith("-"):
            continue
        name = word.rpartition("/")[2]
        if match(first, name) == NO and match(first, word) == NO:
            continue
        if not name.strip(HOLE + GLOB) and not rest.strip("*: "):
            continue
        named = name if is_known(name) else first
        if match_command(pattern, tight((named, *words[at + 1 :]))) or match_command(pattern, tight(words[at:])):
            return True
    return False
