"""JSON as models and their servers really write it.

Repair is attempted only where there is one possible reading. Arguments that were cut off, or
followed by something else, are not guessed at: they are reported as broken, with the raw text.
"""

from __future__ import annotations

import json
from typing import Any

import orjson


def parse_event(data: bytes) -> Any:
    """One payload of a stream. Tolerates bad UTF-8 and lone surrogates, which become U+FFFD.
    Raises ValueError when it is not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return _plain(json.loads(data.decode("utf-8", "replace"), parse_constant=_refuse))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def parse_arguments(raw: str) -> tuple[dict[str, Any], str | None]:
    """The arguments of a tool call, and the raw text if they cannot be used.

    No text and `null` mean no arguments. An object inside a JSON string is unwrapped once, and
    line breaks inside strings are accepted unescaped: each has only one reading.
    """
    text = raw.strip()
    if not text:
        return {}, None
    value = _lenient(text)
    if isinstance(value, str):
        value = _lenient(value)
    if value is None:
        return ({}, None) if text == "null" else ({}, raw)
    return (value, None) if isinstance(value, dict) else ({}, raw)


def _lenient(text: str) -> Any:
    """The value, or None when there is none."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        pass
    try:
        return _plain(json.loads(text, strict=False, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """The value as UTF-8 can carry it. Raises ValueError for numbers JSON has no room for."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return orjson.loads(text)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
