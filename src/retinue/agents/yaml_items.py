"""Frontmatter as a list of keys and values, and the quick way to read most of it.

`load_mapping` reads YAML without the surprises of YAML 1.1: a plain scalar becomes a number only if
the number prints back exactly as it was written (`1.10`, `007`, `1_000`, `0x1F` and dates stay text),
a bool only for true/false in any of the three cases of YAML 1.2, and None only for `null` and `~`.

`load_plain` understands blocks of `key: value` lines with plain or quoted one-line values, flow lists
of plain words, and indented lists of such values. For these it returns exactly what `load_mapping`
returns (a property test compares the two), at a fraction of the cost, and None for everything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 48
MAX_VALUES = 20_000

_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
NULL = frozenset({"", "~", "null", "Null", "NULL"})
_NUMBER_STARTS = frozenset("-0123456789")
_UNUSUAL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_STARTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/.~$(<=+_")
_TYPED = frozenset("0123456789tTfFnN~")
"""How a plain value that is not text can begin."""
_QUOTED = re.compile(r'"[^"\\]*(?:\\["\\n][^"\\]*)*"')
_TEXTS = frozenset({"|", ">", "|-", ">-"})
_BREAKS = re.compile(r"\n+")
_ESCAPED = re.compile(r'\\(["\\n])')
_WORD_LIST = re.compile(r"\[(?: *(?:[A-Za-z][\w.*/-]*|\"[^\"\\,]+\"|'[^',]+') *(?:,(?= *[^ ,\]])|(?=\])))+\]", re.ASCII)


class YamlError(Exception):
    """Not usable YAML. `line` and `column` are 0-based and count within the block."""

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


@dataclass(slots=True)
class Item:
    """One top-level key. Lines and columns are 0-based, within the block."""

    key: str
    value: Any
    line: int
    column: int
    end_line: int
    text: str | None = None
    """The source text, where `value` is a scalar that is not text itself."""
    indent: int = field(default=-1, compare=False)
    """Of the lines of a block list, while one is being read line by line."""


@dataclass(slots=True)
class YamlDocument:
    """All top-level keys in order, repeated ones included."""

    items: list[Item] = field(default_factory=list)


def load_mapping(block: str) -> YamlDocument:
    """Return the keys of `block`; an empty block has none. Raise YamlError where it is no mapping."""
    # PyYAML takes 10 ms to import, and most frontmatter is read by `load_plain` without it.
    from retinue.agents.yaml_reader import build

    return build(block)


def load_value(text: str) -> Any:
    """Return the value of a document of one key. Raise YamlError."""
    items = load_mapping(text).items
    if len(items) != 1:
        raise YamlError("not a single key")
    return items[0].value


def plain(text: str) -> Any:
    """Return the value that an unquoted scalar stands for."""
    if not text:
        return None
    if text[0] in _NUMBER_STARTS:
        return _number(text)
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text in NULL:
        return None
    return text


def scalar_text(value: object) -> str:
    """Return a scalar as text; exact for numbers, because only exact ones became numbers."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def too_deep(value: Any) -> bool:
    """Return whether a value from elsewhere (JSON) nests deeper than YAML is allowed to."""
    layer = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in layer:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return False
        layer = below
    return True


def _number(text: str) -> Any:
    if len(text) > 20:
        return text
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text and abs(number) < 2**53:
            return number
    return text


def load_plain(block: str) -> YamlDocument | None:
    """Return the keys of `block`, or None if it takes more than this to be sure of them."""
    lines = block.split("\n")
    if not "".join(lines).isprintable() and _UNUSUAL.search(block) is not None:
        return None
    reader = _Reader()
    key, indented = reader.key, reader.indented
    for number, line in enumerate(lines):
        if not (indented(line, number) if not line or line[0] == " " else key(line, number)):
            return None
    return reader.finished(lines)


class _Reader:
    """Takes one line after the other; a method returns False to give up."""

    __slots__ = ("items", "text")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.text: _Text | None = None

    def key(self, line: str, number: int) -> bool:
        if self.text is not None:
            self.text.close(self.items[-1], number)
            self.text = None
        key, colon, rest = line.partition(":")
        if not colon or _KEY.fullmatch(key) is None:
            return False
        text = rest.strip(" ")
        if not text:
            self.items.append(Item(key, None, number, 0, number, ""))
            return True
        if rest[0] != " ":
            return False
        first = text[0]
        if first in _STARTS or first > "\xa0":
            if ": " in text or " #" in text or text[-1] == ":":
                return False
            value = plain(text) if first in _TYPED else text
            self.items.append(Item(key, value, number, 0, number, None if value is text else text))
            return True
        if text in _TEXTS:
            self.text = _Text(text)
            value = ""
        else:
            value = _read_marked(text, first)
        self.items.append(Item(key, value, number, 0, number))
        return value is not None

    def indented(self, line: str, number: int) -> bool:
        """Take a line of a text block, `  - value` of a list, or a blank line."""
        if self.text is not None:
            return self.text.add(line)
        text = line.strip(" ")
        if not text:
            if self.items and self.items[-1].indent >= 0:
                # A list goes on to the next key.
                self.items[-1].end_line = number
            return True
        if not self.items or text[:2] != "- ":
            return False
        item, indent = self.items[-1], len(line) - len(line.lstrip(" "))
        if item.text == "":
            item.value, item.text, item.indent = [], None, indent
        elif item.indent != indent:
            return False
        item.end_line = number
        text = text[2:].lstrip(" ")
        first = text[:1]
        if first in _STARTS or first > "\xa0":
            item.value.append(plain(text))
            return ": " not in text and " #" not in text and text[-1] != ":"
        item.value.append(_read_marked(text, first))
        return item.value[-1] is not None

    def finished(self, lines: list[str]) -> YamlDocument | None:
        if self.text is not None:
            if lines[-1]:
                return None
            self.text.lines.pop()
            self.text.close(self.items[-1], len(lines) - 1)
        elif self.items and self.items[-1].indent >= 0 and not lines[-1]:
            self.items[-1].end_line = min(self.items[-1].end_line, len(lines) - 2)
        return YamlDocument(self.items)


class _Text:
    """The indented lines after `|` or `>`, as long as all have the same indentation."""

    __slots__ = ("folded", "indent", "kept", "lines")

    def __init__(self, header: str) -> None:
        self.folded = header[0] == ">"
        self.kept = "" if header[-1] == "-" else "\n"
        self.indent = 0
        self.lines: list[str] = []

    def add(self, line: str) -> bool:
        text = line.lstrip(" ")
        self.lines.append(text)
        if not text:
            return not line and self.indent > 0
        indent = len(line) - len(text)
        self.indent = self.indent or indent
        return indent == self.indent

    def close(self, item: Item, number: int) -> None:
        """`number` is the line after the block."""
        lines = self.lines
        while lines and not lines[-1]:
            lines.pop()
        if lines:
            text = "\n".join(lines)
            if self.folded:
                text = _BREAKS.sub(_fold_breaks, text) if "\n\n" in text else text.replace("\n", " ")
            item.value = text + self.kept
        item.end_line = max(item.line, number - 1)


def _fold_breaks(found: re.Match[str]) -> str:
    # A line break is a space; each empty line after it is a newline.
    return "\n" * (len(found[0]) - 1) or " "


def _read_marked(text: str, first: str) -> Any:
    """Return a quoted text or a flow list of words; None if it is not a simple one."""
    if first == '"':
        if _QUOTED.fullmatch(text) is None:
            return None
        inner = text[1:-1]
        if "\\\\" in inner:
            return _ESCAPED.sub(_unescape, inner)
        if "\\" in inner:
            return inner.replace("\\n", "\n").replace('\\"', '"')
        return inner
    if first == "'":
        if len(text) < 2 or text[-1] != "'" or "'" in text[1:-1]:
            return None
        return text[1:-1]
    if first == "[" and _WORD_LIST.fullmatch(text) is not None:
        return [_word(word) for word in text[1:-1].split(",")]
    return None


def _word(word: str) -> Any:
    word = word.strip(" ")
    if word[0] in "'\"":
        return word[1:-1]
    return plain(word)


def _unescape(match: re.Match[str]) -> str:
    if match[1] == "n":
        return "\n"
    return match[1]
