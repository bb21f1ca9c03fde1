"""Checks data against the type hints of other people's code: strictly, and without extra keys.

Pydantic validates an `Iterable` only when it is read, and inside a union never; this does.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union, is_typeddict

import typing_extensions


def problems(value: Any, hint: Any, place: str = "body") -> list[str]:
    """Everything in which `value` is not a `hint`; of a union, what its best member says."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return []
    if origin in (typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired):
        return problems(value, arguments[0], place)
    if origin in (Union, types.UnionType):
        return min((problems(value, node, place) for node in arguments), key=len)
    if origin is Literal:
        return [] if value in arguments else [f"{place}: {value!r} is none of {arguments}"]
    if is_typeddict(hint) or typing_extensions.is_typeddict(hint):
        return _dictionary(value, hint, place)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(value, dict):
            return [f"{place}: not an object"]
        return [text for key, item in value.items() for text in problems(item, arguments[1], f"{place}.{key}")]
    if origin is not None and arguments:
        if not isinstance(value, list):
            return [f"{place}: not a list"]
        return [text for i, item in enumerate(value) for text in problems(item, arguments[0], f"{place}[{i}]")]
    return _single(value, hint, place)


def _single(value: Any, hint: Any, place: str) -> list[str]:
    kinds: dict[Any, Any] = {float: (int, float), int: int, str: str, bool: bool, None: type(None)}
    kinds[type(None)] = type(None)
    if hint not in kinds:
        return [f"{place}: {hint} is not a type of requests"] * 9
    fits = isinstance(value, kinds[hint]) and (hint is bool or not isinstance(value, bool))
    return [] if fits else [f"{place}: {value!r} is not {hint}"]


def _dictionary(value: Any, hint: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: not an object"] * 5
    # The classes' own lists of required keys do not see through annotations written as strings.
    hints = typing_extensions.get_type_hints(hint, include_extras=True)
    required = [key for key, kind in hints.items() if typing.get_origin(kind) is typing_extensions.Required]
    found = [f"{place}: '{key}' is missing" for key in required if key not in value]
    for key, item in value.items():
        found += problems(item, hints[key], f"{place}.{key}") if key in hints else [f"{place}: '{key}' is unknown"]
    wrong_kind = value.get("type") is not None and f"{place}.type" in "".join(found)
    return found * 3 if wrong_kind else found
