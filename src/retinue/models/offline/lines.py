"""What a single line of source is: a definition, prose (comment, docstring), an import, or code.

From the line alone, in any language: cheap, and right often enough to rank by.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from retinue.core.lean import dataclass
from retinue.models.offline.patterns import KEYWORDS
from retinue.models.offline.stems import stems_of

Role = Literal["type", "function", "value", "prose", "import", "code"]

LONGEST = 300
"""Characters that are looked at: what a line is shows at its beginning."""

_KEYWORD = re.compile(
    rf"(?P<indent>\s*)(?:[\w@\[\]()<>*&,.]+\s+){{0,5}}?(?P<word>{KEYWORDS})\s+(?:\([^)]*\)\s*)?(?P<name>[\w.:]+)"
)
_ASSIGNED = re.compile(r"(?P<indent>\s*)(?:[\w.]+\.)?(?P<name>\w+)\s*[:=]\s*(?:async\s+)?(?:function\b|\([^)]*\)\s*=>)")
_C_LIKE = re.compile(r"(?P<indent>\s*)(?P<before>(?:[A-Za-z_][\w<>,.\[\]?]*[\s*&]+)*)(?P<name>[A-Za-z_]\w*)\s*\(")
_CONSTANT = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(?::[^=]+)?=[^=]")
_MACRO = re.compile(r"\s*#\s*define\s+(?P<name>\w+)")
_IMPORT = re.compile(
    r"\s*(?:import\b|from\s+\S+\s+import\b|#\s*include\b|use\s+[\w:{]|require\b|export\s+(?:\*|\{).*from\b"
    r"|(?:const|var|let)\s.*\brequire\()"
)
_COMMENT = re.compile(
    r"\s*(?:#(?!\s*(?:define|include|if|el|end|undef|pragma)\b)|//|/\*|\*|r?\"\"\"|'''|--\s|;;|%|<!--)"
)
_CALLABLE = re.compile(r"=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*(?::[^=]+)?=>|\w+\s*=>)")
_PROSE = re.compile(r"[^\W\d_(`'\"*:.]?[^={};<>|\\]*")

_STATEMENTS = frozenset(
    "if for while switch return else elif catch except with assert raise throw await yield not and or in is new delete "
    "sizeof typeof print match case do try lambda del from import".split()
)
_TYPES = frozenset(
    "class struct enum trait interface type impl protocol object record union typedef module namespace defmodule "
    "mod".split()
)
_VALUES = frozenset({"const", "let", "var"})


@dataclass(frozen=True, slots=True)
class Line:
    """`name` is what a definition defines; `nested`, that it stands inside something else."""

    role: Role
    name: str = ""
    nested: bool = False


@lru_cache(maxsize=50_000)
def classify(text: str) -> Line:
    text = text[:LONGEST]
    if found := _MACRO.match(text):
        return Line("value", found["name"])
    if _COMMENT.match(text):
        return Line("prose")
    if _IMPORT.match(text):
        return Line("import")
    return _definition(text) or Line("prose" if _looks_like_prose(text) else "code")


def _definition(text: str) -> Line | None:
    found = _KEYWORD.match(text)
    if found and found["name"].strip(":.") and not _looks_like_prose(text):
        return _by_keyword(text, found)
    if found := _ASSIGNED.match(text):
        return Line("function", found["name"], len(found["indent"]) >= 4)
    if found := _CONSTANT.match(text):
        return Line("value", found["name"])
    found = _C_LIKE.match(text)
    if found and _opens_body(found, text):
        return Line("function", found["name"], _depth(found) >= 4)
    return None


def _by_keyword(text: str, found: re.Match[str]) -> Line:
    word, nested = found["word"], _depth(found) >= 2
    name = re.split(r"[.:]+", found["name"].strip(":."))[-1]
    if word not in _VALUES:
        return Line("type" if word in _TYPES else "function", name, nested)
    if _CALLABLE.search(text):
        return Line("function", name, nested)
    return Line("code") if nested else Line("value", name)


def _opens_body(found: re.Match[str], text: str) -> bool:
    """`name(args) {` anywhere; `type name(args)` only from the left edge; a call never."""
    before = found["before"].split()
    if found["name"] in _STATEMENTS or any(word in _STATEMENTS for word in before):
        return False
    end = text.rstrip()
    if end.endswith("{"):
        return True
    return bool(before) and not found["indent"] and not end.endswith(";") and "=" not in text


def _depth(found: re.Match[str]) -> int:
    return len(found["indent"].expandtabs(4))


def _looks_like_prose(text: str) -> bool:
    """At least four words, mostly letters, without the punctuation of code."""
    stripped = text.strip()
    words = stripped.split()
    if len(words) < 4 or not _PROSE.fullmatch(stripped):
        return False
    plain = sum(word.strip("`'\"().,:;*_-").isalpha() for word in words)
    return plain / len(words) > 0.7


@lru_cache(maxsize=50_000)
def line_stems(text: str) -> frozenset[str]:
    return frozenset(stems_of(text))
