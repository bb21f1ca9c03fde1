"""Frontmatter YAML as plain values, without the surprises of YAML 1.1.

The C parser of PyYAML supplies events; the values are built by us (`yaml_events`), so that

* a plain scalar becomes a number only if the number prints back exactly as it was written
  (`1.10`, `007`, `1_000`, `0x1F` and dates stay text), a bool only for true/false in any of
  the three cases of YAML 1.2, and None only for `null` and `~`;
* mapping keys are always text, and repeated top-level keys are all reported;
* depth, aliases and size are bounded: no input recurses, expands or hangs.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from retinue.core.lean import dataclass

MAX_DEPTH = 48
MAX_VALUES = 20_000

_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
NULL = frozenset({"", "~", "null", "Null", "NULL"})
_NUMBER_STARTS = frozenset("-0123456789")


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
class Document:
    """All top-level keys in order, repeated ones included."""

    items: list[Item] = field(default_factory=list)


def load_mapping(block: str) -> Document:
    """The mapping that `block` is. Raises YamlError for everything else; an empty block is an
    empty mapping."""
    from retinue.agents.yaml_events import build  # PyYAML: most files never need it

    return build(block)


def load_value(text: str) -> Any:
    """The value of one `key: value` document of one key. Raises YamlError."""
    items = load_mapping(text).items
    if len(items) != 1:
        raise YamlError("not a single key")
    return items[0].value


def plain(text: str) -> Any:
    """What an unquoted scalar means."""
    if not text or text[0] in _NUMBER_STARTS:
        return _number(text) if text else None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text in NULL:
        return None
    return text


def scalar_text(value: object) -> str:
    """A scalar as text; exact for numbers, because only exact ones became numbers."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def too_deep(value: Any) -> bool:
    """Whether a value from elsewhere (JSON) nests deeper than YAML is allowed to."""
    layer = [value]
    for _ in range(MAX_DEPTH):
        layer = [
            each
            for item in layer
            if isinstance(item, (dict, list))
            for each in (item.values() if isinstance(item, dict) else item)
        ]
        if not layer:
            return False
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
