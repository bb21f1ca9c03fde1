"""Values as YAML that every reader of agent files understands alike.

PyYAML (YAML 1.1), npm `yaml` (1.2), and the line-wise readers of some dialects disagree about
plain text: `no`, `1.10`, `2025-01-01`, `a: b`, `x #y`. A string is written plain only when all
of them read the very same string; otherwise it is double-quoted, on one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_WORDS = frozenset(
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "~", "undefined"]
)
_PLAIN_START = re.compile(r"[^\W\d]|[/(\u0100-\U0010ffff]")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SIMPLE_KEY_LIMIT = 1000
"""YAML readers give up looking for the colon after 1,024 characters; longer keys need `? key`."""


def is_plain(text: str) -> bool:
    """True when `text` needs no quotes as the value of a key, for any reader."""
    if not text or text != text.strip() or not text.isprintable():
        return False
    if not _PLAIN_START.match(text) or text.lower() in _WORDS:
        return False
    return ": " not in text and " #" not in text and not text.endswith(":")


def is_plain_in_list(text: str) -> bool:
    """True when `text` needs no quotes inside `[a, b]`."""
    return is_plain(text) and not any(mark in text for mark in ",[]{}:?")


def quote(text: str) -> str:
    """`text` in double quotes, on one line; half a surrogate pair becomes U+FFFD, for no file
    can hold it."""
    return '"' + "".join(_escape(char) for char in text) + '"'


def scalar(value: Any, *, in_list: bool = False) -> str:
    """One value that is no collection. What YAML has no word for is written as its text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    text = str(value)
    plain = is_plain_in_list(text) if in_list else is_plain(text)
    return text if plain else quote(text)


def flow(value: Any) -> str:
    """Any value on one line: `[a, "b c: d"]`, `{key: [1, 2]}`."""
    return _flow(value, lambda each: scalar(each, in_list=True))


def json_flow(value: Any) -> str:
    """Any value on one line with every string quoted: read alike by YAML and by JSON."""
    return _flow(value, lambda each: quote(each) if isinstance(each, str) else scalar(each))


def _flow(value: Any, leaf: Callable[[Any], str]) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow_key(leaf(key))}: {_flow(item, leaf)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item, leaf) for item in value) + "]"
    return leaf(value)


def _flow_key(name: str) -> str:
    return name if len(name) <= _SIMPLE_KEY_LIMIT else f"? {name} "


def entry(key: Any, value: Any, indent: int = 0) -> list[str]:
    """`key: value` as lines without endings, collections in block form."""
    pad = " " * indent
    name = scalar(key, in_list=True)
    if len(name) > _SIMPLE_KEY_LIMIT:
        first, *rest = _after(pad + ":", value, indent)
        return [f"{pad}? {name}", first, *rest]
    return _after(f"{pad}{name}:", value, indent)


def _after(head: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [head, *(line for key, item in value.items() for line in entry(key, item, indent + 2))]
    if isinstance(value, (list, tuple)) and value:
        return [head, *(line for item in value for line in _item(item, indent + 2))]
    if isinstance(value, (Mapping, list, tuple)):
        return [f"{head} {'{}' if isinstance(value, Mapping) else '[]'}"]
    return [f"{head} {scalar(value)}"]


def _item(value: Any, indent: int) -> list[str]:
    """One element of a block list. A collection in it begins on the dash's own line."""
    pad = " " * indent
    if isinstance(value, Mapping) and value:
        lines = [line for key, item in value.items() for line in entry(key, item, indent + 2)]
    elif isinstance(value, (list, tuple)) and value:
        lines = [line for item in value for line in _item(item, indent + 2)]
    else:
        return [f"{pad}- {flow(value)}"]
    return [f"{pad}- {lines[0][indent + 2 :]}", *lines[1:]]


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char == " " or char.isprintable():
        return char
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _float(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text
