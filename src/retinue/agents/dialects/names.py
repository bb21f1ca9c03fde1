"""Lists of names in every form that files use: comma strings, YAML lists, JSON in a string."""

from __future__ import annotations

import json
from typing import Any

from retinue.agents.dialects.table import BadValueError
from retinue.agents.yaml_values import scalar_text

_OPEN = "([{"
_CLOSE = ")]}"


class BadNamesError(BadValueError):
    """A list that cannot be read as a whole. `readable` are the names in it that can; whether
    they may be used without the rest is for the field to say."""

    def __init__(self, why: str, remedy: str, *, readable: tuple[str, ...] = ()) -> None:
        super().__init__(why, remedy)
        self.readable = readable


def split_names(text: str, *, spaces: bool = False) -> tuple[str, ...]:
    """Names between commas, never split inside parentheses. With `spaces` a string without any
    such comma is split at blanks instead, as the Agent Skills format has it."""
    text = text.strip()
    if text.startswith("["):
        return _from_json(text)
    if text.startswith("{"):
        raise BadNamesError("the map cannot be read", "Close it with '}', or write 'a, b'.")
    if "(" not in text:
        parts = text.split(",")
        if spaces and len(parts) == 1:
            parts = text.split()
        if '"' not in text and "'" not in text:
            return tuple([name for part in parts if (name := part.strip())])
    else:
        parts = _split_outside(text, ",")
        if spaces and len(parts) == 1:
            parts = _split_outside(text, " ")
    return tuple(name for part in parts if (name := bare(part)))


def read_names(value: Any, *, spaces: bool = False) -> tuple[str, ...]:
    """The names in `value`. Raises BadNamesError."""
    if isinstance(value, str):
        return split_names(value, spaces=spaces)
    if not isinstance(value, list):
        raise BadNamesError(f"a list of names is wanted, not {describe(value)}", "Write 'a, b' or a YAML list.")
    names: list[str] = []
    strange: list[Any] = []
    for item in value:
        name = _item_name(item)
        if name is None:
            strange.append(item)
        elif name:
            names.append(name)
    if strange:
        why = f"one entry is {describe(strange[0])}, not a name"
        raise BadNamesError(why, "Write one name per entry.", readable=tuple(names))
    return tuple(names)


def describe(value: Any) -> str:
    """`value` in an error message: short, and plain about its type."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return f"'{text[:40]}…'" if len(text) > 40 else f"'{text}'"


def _item_name(item: Any) -> str | None:
    if isinstance(item, str):
        return bare(item)
    if isinstance(item, dict):
        # `- Bash(git log: *)` is a mapping to YAML; put the text together again.
        if len(item) == 1:
            ((key, value),) = item.items()
            if "(" in key and not isinstance(value, (dict, list)):
                return f"{key}: {scalar_text(value)}".rstrip()
        return None
    return None if isinstance(item, list) else scalar_text(item)


def _from_json(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        if not text.endswith("]"):
            raise BadNamesError("the list has no closing bracket", "Close it with ']'.") from None
        names = tuple(name for part in _split_outside(text[1:-1], ",") if (name := bare(part)))
        if any(name[0] in "[{" for name in names):
            raise BadNamesError("one entry is a list or a map, not a name", "Write one name per entry.") from None
        return names
    return read_names(found)


def _split_outside(text: str, separator: str) -> list[str]:
    parts: list[str] = []
    depth = start = 0
    for position, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth = max(0, depth - 1)
        elif letter == separator and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        return text.split(separator)  # a parenthesis that never closes must not swallow names
    parts.append(text[start:])
    return parts


def bare(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].strip()
    return text
