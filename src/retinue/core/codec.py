"""Plain JSON data to domain values and back.

Encoding is `to_data` (or `orjson.dumps` directly: it knows dataclasses). Decoding follows the
field types of each class, so a mapping a tool or model wrote stays exactly what it was, and
unknown fields of a newer version are dropped instead of breaking an old reader.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
Decoder = Callable[[Any], Any]


def to_data(value: Any) -> Any:
    """Dataclasses become dicts and tuples lists, all the way down."""
    cls: Any = type(value)
    if cls in _PLAIN:
        return value
    names = _names(cls)
    if names is not None:
        return {name: to_data(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_data(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_data(item) for item in value)
    return value


def from_data(cls: type[T], data: Mapping[str, Any]) -> T:
    """Build a `cls` (a dataclass) from what `to_data` made. Raise ValueError on other data."""
    try:
        plan = _plan(typing.cast(Any, cls))
        fields = {key: decode(data[key]) for key, decode in plan.items() if key in data}
        return cls(**fields)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a {cls.__name__}: {error}") from error


def from_union(union: Any, data: Mapping[str, Any]) -> Any:
    """Build the member of `union` that `data["type"]` names."""
    members = _members(union)
    tag = data.get("type")
    if tag not in members:
        raise ValueError(f"unknown type {tag!r}; known: {', '.join(sorted(members))}")
    return from_data(members[tag], data)


_PLAIN = frozenset({str, int, float, bool, type(None)})


@cache
def _names(cls: Any) -> tuple[str, ...] | None:
    return tuple(f.name for f in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


@cache
def _plan(cls: Any) -> dict[str, Decoder]:
    hints = typing.get_type_hints(cls)
    return {f.name: _decoder(hints[f.name]) for f in dataclasses.fields(cls) if f.init}


@cache
def _members(union: Any) -> dict[str, type]:
    tagged: dict[str, type] = {}
    for node in typing.get_args(union):
        for f in dataclasses.fields(node):
            if f.name == "type":
                tagged[str(f.default)] = node
    return tagged


def _decoder(hint: Any) -> Decoder:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        found: type = hint
        return lambda data: from_data(found, data)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        item = _decoder(args[0])
        return lambda data: tuple(item(element) for element in data)
    if origin is Mapping or origin is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        value = args[1] if len(args) == 2 else Any
        if dataclasses.is_dataclass(value):
            each = _decoder(value)
            return lambda data: {key: each(element) for key, element in data.items()}
        return _same
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(hint, args)
    return _same


def _union_decoder(hint: Any, args: tuple[Any, ...]) -> Decoder:
    options = [arg for arg in args if arg is not type(None)]
    classes = [arg for arg in options if dataclasses.is_dataclass(arg)]
    if len(classes) > 1:
        return lambda data: None if data is None else from_union(hint, data)
    sequences = [arg for arg in options if typing.get_origin(arg) is tuple]
    nested = _decoder((classes or sequences or [Any])[0])

    def decode(data: Any) -> Any:
        wanted = isinstance(data, Mapping) if classes else isinstance(data, (list, tuple))
        return nested(data) if wanted else data

    return decode


def _same(data: Any) -> Any:
    return data
