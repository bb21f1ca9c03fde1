"""What a path says about a file, and what a single line of source is: guessed from the text
alone, in any language, and right often enough to rank by."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from retinue.models.offline.question import PATTERNS, VOCABULARY

FileKind = Literal["source", "facade", "script", "test", "docs", "example", "vendored", "generated", "data", "history"]
LineKind = Literal["type", "function", "value", "prose", "import", "code"]

KIND_WEIGHT: dict[FileKind, float] = {
    "source": 1.0, "facade": 0.9, "script": 0.6, "example": 0.35, "data": 0.3, "docs": 0.25, "test": 0.2,
    "vendored": 0.2, "generated": 0.2, "history": 0.1,
}  # fmt: skip
"""How likely a file of a kind is the answer to a question about code. A facade (`__init__`,
`index`) re-exports more often than it does something."""

_SOURCE = frozenset(VOCABULARY["source_endings"].split())
_PROSE_FILES = frozenset(VOCABULARY["prose_endings"].split())
_HEADERS = frozenset("h hh hpp pxd mli".split())
FACADES = frozenset("__init__ index mod lib __main__ exports external api".split())
_BUILD_FILES = frozenset("setup noxfile build gulpfile fabfile".split())

KEYWORDS = (
    "class|struct|enum|trait|interface|type|impl|module|mod|namespace|protocol|object|record|union|typedef|defmodule"
    "|def|func|fn|function|macro_rules!|sub|defp|proc|const|let|var"
)
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
_C_LIKE = re.compile(r"(?P<indent>\s*)(?P<before>(?:[A-Za-z_][\w<>,.\[\]?]*[\s*&]+)*)(?P<name>[A-Za-z_]\w*)\s*\(")
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


class Line(Struct, frozen=True):
    """`name` is what a definition defines; `nested`, that it stands inside something else."""

    kind: LineKind
    name: str = ""
    nested: bool = False


def asked_kinds(task: str) -> frozenset[FileKind]:
    """Return the kinds of files that a task is about."""
    found = set()
    for kind, pattern in VOCABULARY["asked"].items():
        if re.search(pattern, task, re.IGNORECASE):
            found.add(kind)
    return frozenset(found)


def weight_of(path: str, asked: frozenset[FileKind]) -> float:
    """Return how likely this file is the answer, compared with source, from its kind alone."""
    kind = kind_of(path)
    if kind in asked:
        return 1.0
    weight = KIND_WEIGHT[kind]
    ending = path.rpartition(".")[2].lower()
    # Declarations: the work is done elsewhere.
    if ending in _HEADERS:
        weight *= 0.75
    elif ending not in _SOURCE and kind in ("test", "example", "vendored"):
        weight *= 0.5
    # Who asks for tests does not want source.
    if asked & {"test", "docs", "example", "history", "vendored"}:
        weight *= 0.05
    return weight


@lru_cache(maxsize=20_000)
def kind_of(path: str) -> FileKind:
    *folders, name = path.replace("\\", "/").split("/")
    base, dot, ending = name.rpartition(".")
    if not base:
        base, dot, ending = name, "", ""
    source = ending.lower() in _SOURCE
    if PATTERNS["generated"].search(name) or any(folder.endswith((".egg-info", ".dist-info")) for folder in folders):
        return "generated"
    if PATTERNS["history"].fullmatch(base) and not source:
        return "history"
    kind: FileKind
    lowered = [folder.lower() for folder in folders]
    for kind, names in VOCABULARY["folders"].items():
        if not set(names.split()).isdisjoint(lowered):
            if kind == "docs" and source:
                return "script"
            if kind != "generated" or not source or "src" not in folders:
                return kind
    if PATTERNS["test_name"].fullmatch(base):
        return "test"
    if not dot or (base in _BUILD_FILES and source and not folders):
        return "script"
    if source:
        return "facade" if base in FACADES else "source"
    return "docs" if ending.lower() in _PROSE_FILES else "data"


@lru_cache(maxsize=50_000)
def line_of(text: str) -> Line:
    """Return what a line is: its first 300 characters show it."""
    text = text[:300].rstrip()
    if _IMPORT.match(text):
        return Line("import")
    if _PROSE.match(text):
        return Line("prose")
    if found := _CALLABLE.match(text):
        return Line("function", found["name"], _is_nested(found))
    if found := _KEYWORD.match(text):
        if not _VALUE.fullmatch(found["word"]):
            kind: LineKind = "type" if _TYPE.fullmatch(found["word"]) else "function"
            return Line(kind, found["name"], _is_nested(found))
        return Line("code") if _is_nested(found) else Line("value", found["name"])
    if found := _CONSTANT.match(text):
        return Line("value", found["macro"] or found["name"])
    if (found := _C_LIKE.match(text)) and _opens_body(found, text):
        return Line("function", found["name"], _is_nested(found))
    return Line("code")


def _opens_body(found: re.Match[str], text: str) -> bool:
    """`name(args) {` anywhere; `type name(args)` only from the left edge; a call never."""
    if _STATEMENT.search(found["before"] + found["name"]):
        return False
    left = bool(found["before"]) and not found["indent"] and not text.endswith(";") and "=" not in text
    return left or text.endswith("{")


def _is_nested(found: re.Match[str]) -> bool:
    return len(found["indent"].expandtabs(4)) >= 2
