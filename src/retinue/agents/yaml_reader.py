"""Frontmatter as a list of keys and values: YAML without the surprises of YAML 1.1.

A plain scalar becomes a number only if the number prints back exactly as it was written (`1.10`, `007`, `1_000`,
`0x1F` and dates stay text), a bool only for true/false in any of the three cases of YAML 1.2, and None only for
`null` and `~`. Mapping keys are always text, and repeated top-level keys are all reported. Depth, aliases and
size are bounded: no input recurses, expands or hangs.

`load_plain` is a shortcut for what most files have: one-line values, lists of them, and indented text. It returns
exactly what `load_mapping` returns (a property test compares the two) at a third of the cost and without PyYAML, which
takes 10 ms to import, and None for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

MAX_NESTING = 48
MAX_VALUES = 20_000
MAX_NOTED_CHARACTERS = 200
"""Of a key, in the path under which its line is noted."""

_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_NUMBER_STARTS = frozenset("-0123456789")
_TYPED_STARTS = frozenset("0123456789tTfFnN~")
"""The first characters of plain scalars that may be something else than text."""

_UNUSUAL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_PLAIN_STARTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/.~$(<=+_")
_WORD_LIST = re.compile(r"\[(?: *(?:[A-Za-z][\w.*/-]*|\"[^\"\\,]+\"|'[^',]+') *(?:,(?= *[^ ,\]])|(?=\])))+\]", re.ASCII)
_QUOTED = re.compile(r'"[^"\\]*(?:\\["\\n][^"\\]*)*"|' + "'[^']*'")
_ESCAPED = re.compile(r'\\(["\\n])')
_BLOCK_HEADERS = frozenset({"|", ">", "|-", ">-"})
_LINE_BREAKS = re.compile(r"\n+")
_UNCERTAIN = object()
"""A value that takes YAML to read."""

_TEXT_TAGS = frozenset({None, "!", "tag:yaml.org,2002:str"})
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null"))
_COLLECTION_TAGS = frozenset({"!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class YamlError(Exception):
    """The text is not usable YAML. `line` and `column` count from 1."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


class Item(Struct):
    """One top-level key. Lines and columns count from 1; `end_line` is the last line of the value."""

    key: str
    value: Any
    line: int
    column: int
    end_line: int
    text: str | None = None
    """The source text of a `value` that is a scalar and not text itself."""
    key_end: int = 0
    """The column behind the key and its quotes; 0 if the key takes several lines or is merged."""
    leaf_line: int = 0
    """The line on which the last scalar ends; comments may follow before `end_line`."""


def load_plain(block: str) -> list[Item] | None:
    """Return the keys of `block`, or None if it takes more than this to be sure of them."""
    lines = block.split("\n")
    if not "".join(lines).isprintable() and _UNUSUAL.search(block) is not None:
        return None
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
    items: list[Item] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        key, colon, source = line.partition(":")
        text = source.strip(" ")
        if not colon:
            if line.strip(" "):
                return None
            continue
        is_name = key.isidentifier() and key.isascii() and len(key) <= 64
        if not (is_name or _PLAIN_KEY.fullmatch(key)) or (text and source[0] != " "):
            return None
        item = Item(key, None, number, 1, number, None, len(key) + 1, number)
        items.append(item)
        if text and text not in _BLOCK_HEADERS:
            value = _one_line_value(text)
            if value is _UNCERTAIN:
                return None
            item.value, item.text = value, None if isinstance(value, (str, list)) else text
            continue
        first = number
        while number < len(lines) and lines[number][:1] in ("", " "):
            number += 1
        below = lines[first:number]
        if text and number == len(lines) and not ends_with_newline:
            return None
        if not (_read_text(item, text, below) if text else _read_list(item, below)):
            return None
    return items


def _one_line_value(text: str) -> Any:
    first = text[0]
    if first in _PLAIN_STARTS or first > "\xa0":
        if ": " in text or " #" in text or text[-1] == ":":
            return _UNCERTAIN
        return plain(text) if first in _TYPED_STARTS else text
    if first == "[":
        if _WORD_LIST.fullmatch(text) is None:
            return _UNCERTAIN
        return [_word(word.strip(" ")) for word in text[1:-1].split(",")]
    if _QUOTED.fullmatch(text) is None:
        return _UNCERTAIN
    inner = text[1:-1]
    return _ESCAPED.sub(_unescape, inner) if first == '"' and "\\" in inner else inner


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _read_list(item: Item, below: list[str]) -> bool:
    """Read the indented lines `- value` below a key. Return False for anything else there."""
    values: list[Any] = []
    indent = 0
    for line in below:
        text = line.lstrip(" ")
        item.end_line += 1
        if not text:
            continue
        indent = indent or len(line) - len(text)
        word = text[2:].strip(" ")
        if text[:2] != "- " or not word or len(line) - len(text) != indent:
            return False
        values.append(_one_line_value(word))
        if values[-1] is _UNCERTAIN:
            return False
        item.leaf_line = item.end_line
    if indent:
        item.value = values
    else:
        item.text, item.end_line = "", item.line
    return True


def _read_text(item: Item, header: str, below: list[str]) -> bool:
    """Read the text below `|` or `>`. Return False unless all its lines have the same indentation."""
    item.end_line += len(below)
    item.leaf_line = item.end_line
    while below and not below[-1]:
        below.pop()
    indent = len(below[0]) - len(below[0].lstrip(" ")) if below else 0
    if not indent:
        return False
    for line in below:
        if line and (line[:indent].strip(" ") or line[indent : indent + 1] in ("", " ")):
            return False
    text = "\n".join([line[indent:] for line in below])
    if header[0] == ">":
        text = _LINE_BREAKS.sub(_fold, text)
    item.value = text if header[-1] == "-" else f"{text}\n"
    return True


def _fold(match: re.Match[str]) -> str:
    # A line break is a space; each empty line after it is a newline.
    return "\n" * (len(match[0]) - 1) or " "


def _word(word: str) -> Any:
    if word[0] in "'\"":
        return word[1:-1]
    return plain(word)


def load_mapping(block: str, lines: dict[str, int] | None = None) -> list[Item]:
    """Return the keys of `block`; an empty block has none. With `lines`, note the line of every value by its path
    (`$.cases[0].name`), and refuse a mapping that has a key twice. Raise YamlError where the block is no mapping."""
    import yaml

    try:
        return _EventReader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)(block), lines).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(filter(None, (error.context, error.problem))) or "not valid YAML"
        raise YamlError(reason, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1) from None
    except yaml.YAMLError as error:
        raise YamlError(str(error).partition("\n")[0] or "not valid YAML") from None


def load_value(text: str) -> Any:
    """Return the value of a document of one key. Raise YamlError."""
    items = load_mapping(text)
    if len(items) != 1:
        raise YamlError("not a single key")
    return items[0].value


def plain(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _NULL:
        return None
    if text[0] in _NUMBER_STARTS:
        return _number(text)
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return text


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
    for _ in range(MAX_NESTING):
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


class _EventReader:
    """Builds values from the events of PyYAML, which know their places; its nodes would be built by a recursion that
    nothing bounds. `event` is the current one, `end` the mark behind the last value, `text` its source if it was a
    scalar, and `leaf_line` as `Item` has it."""

    def __init__(self, loader: Any, lines: dict[str, int] | None) -> None:
        self.loader = loader
        self.lines = lines
        self.event: Any = None
        self.end: Any = None
        self.text: str | None = None
        self.leaf_line = 1
        self.anchors: dict[str, Any] = {}
        self.values_left = MAX_VALUES

    def next(self) -> str:
        """Take the next event and return the name of its class."""
        self.event = self.loader.get_event()
        return type(self.event).__name__

    def error(self, reason: str) -> YamlError:
        mark = self.event.start_mark
        return YamlError(reason, mark.line + 1, mark.column + 1)

    def document(self) -> list[Item]:
        items: list[Item] = []
        self.next()
        if self.next() == "StreamEndEvent":
            return items
        kind = self.next()
        if kind == "MappingStartEvent":
            self.check_collection()
            items = self.items()
        elif kind != "ScalarEvent" or self.event.value not in _NULL or not self.event.implicit[0]:
            raise self.error("the top level is not a mapping of keys to values")
        self.next()
        if self.next() != "StreamEndEvent":
            raise self.error("a second YAML document begins here")
        return items

    def items(self) -> list[Item]:
        items: list[Item] = []
        merged: dict[str, Item] = {}
        for key, value in self.pairs("$", 0):
            start, stop, end = key.start_mark, key.end_mark, self.end
            line = start.line + 1
            if _is_merge(key):
                for name, inherited in self.bases(value, line):
                    merged.setdefault(name, Item(name, inherited, line, 1, end.line + 1))
                continue
            end_line = end.line + 1 if end.column or end.line == start.line else end.line
            key_end = stop.column + 1 if stop.line == start.line else 0
            items.append(Item(key.value, value, line, start.column + 1, end_line, self.text, key_end, self.leaf_line))
        for item in items:
            merged.pop(item.key, None)
        return [*items, *merged.values()]

    def bases(self, value: Any, line: int) -> Iterator[tuple[str, Any]]:
        """Yield for `<<: *base` the keys of base, which the mapping's own keys override."""
        for base in value if isinstance(value, list) else [value]:
            if not isinstance(base, dict):
                raise YamlError("'<<' needs a mapping to merge", line)
            yield from base.items()

    def pairs(self, path: str, depth: int) -> Iterator[tuple[Any, Any]]:
        """Yield the event of each key of a mapping with its value."""
        while (kind := self.next()) != "MappingEndEvent":
            if kind != "ScalarEvent":
                raise self.error("a key has to be plain text")
            key = self.event
            below = self.note(f"{path}.{key.value[:MAX_NOTED_CHARACTERS]}")
            yield key, self.value(self.next(), below, depth)

    def note(self, path: str) -> str:
        """Note the line of the current event under `path`, and return the path; it is empty where nobody asks."""
        if self.lines is None:
            return ""
        if path in self.lines:
            raise self.error(f"the key `{self.event.value}` stands here twice")
        self.lines[path] = self.event.start_mark.line + 1
        return path

    def value(self, kind: str, path: str, depth: int) -> Any:
        """Return the value that begins with the current event."""
        event = self.event
        text = None
        if kind == "AliasEvent":
            if event.anchor not in self.anchors:
                raise self.error(f"there is no anchor '&{event.anchor}' before this")
            value = self.copy(self.anchors[event.anchor], 0)
        elif kind == "ScalarEvent":
            value = self.scalar()
            if value is not event.value:
                text = event.value
            if event.anchor:
                self.anchors[event.anchor] = value
        else:
            value = self.collection(kind, path, depth + 1)
        self.text, self.end = text, self.event.end_mark
        if kind in ("AliasEvent", "ScalarEvent") or event.flow_style:
            first = self.event.start_mark.line
            self.leaf_line = self.end.line + (self.end.column > 0 or self.end.line == first)
        return value

    def collection(self, kind: str, path: str, depth: int) -> Any:
        if depth > MAX_NESTING:
            raise self.error(f"nested deeper than {MAX_NESTING} levels")
        self.check_collection()
        container: Any = {} if kind == "MappingStartEvent" else []
        if self.event.anchor:
            self.anchors[self.event.anchor] = container
        if isinstance(container, list):
            while (kind := self.next()) != "SequenceEndEvent":
                container.append(self.value(kind, self.note(f"{path}[{len(container)}]"), depth))
                self.count_value()
            return container
        for key, value in self.pairs(path, depth):
            self.count_value()
            if not _is_merge(key):
                container[key.value] = value
            elif isinstance(value, dict):
                for name, inherited in value.items():
                    container.setdefault(name, inherited)
        return container

    def copy(self, value: Any, depth: int) -> Any:
        """Return a copy of the value of an alias, so that no value is shared or contains itself."""
        self.count_value()
        if depth > MAX_NESTING:
            raise self.error("an alias contains itself or nests too deep")
        if isinstance(value, dict):
            return {key: self.copy(entry, depth + 1) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.copy(entry, depth + 1) for entry in value]
        return value

    def count_value(self) -> None:
        self.values_left -= 1
        if self.values_left < 0:
            raise YamlError(f"more than {MAX_VALUES:,} values; aliases may expand too far")

    def check_collection(self) -> None:
        if not self.event.implicit and self.event.tag not in _COLLECTION_TAGS:
            raise self.error(f"the tag '{self.event.tag}' means nothing here")

    def scalar(self) -> Any:
        event = self.event
        if event.implicit[0]:
            return event.value if event.style else plain(event.value)
        if event.tag in _TEXT_TAGS or event.implicit[1]:
            return event.value
        if event.tag in _PLAIN_TAGS:
            return plain(event.value)
        raise self.error(f"the tag '{event.tag}' means nothing here")


def _is_merge(key: Any) -> bool:
    # In quotes it is a key like any other.
    return bool(key.value == "<<" and key.implicit[0])
