"""A first check of a call's arguments: types, required names, enums, unknown names.

It catches what models get wrong, in words a model can act on, without a validator's import.
It never refuses what the schema allows: parts it does not know (anyOf, $ref, …) it leaves to
the tool, which validates for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN = 8
_DEEPEST = 32
LEFT_TO_THE_TOOL = frozenset({"$ref", "anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef"})


def problem(arguments: Any, schema: Any) -> str | None:
    """The first few things wrong with `arguments`, or None."""
    found: list[str] = []
    _check(arguments, schema, "", found, 0)
    if not found:
        return None
    shown = found[:_SHOWN]
    if len(found) > _SHOWN:
        shown.append(f"… and {len(found) - _SHOWN} more")
    return "; ".join(shown)


def fits(value: Any, schema: Any) -> bool:
    """Whether `value` has a type that `schema` allows; its parts are not looked at."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    return wanted is None or _is_one_of(value, wanted)


def _check(value: Any, schema: Any, place: str, found: list[str], depth: int) -> None:
    if not isinstance(schema, Mapping) or depth > _DEEPEST or not LEFT_TO_THE_TOOL.isdisjoint(schema):
        return
    wanted = schema.get("type")
    if wanted is not None and not _is_one_of(value, wanted):
        found.append(f"{_name(place)} must be {_words(wanted)}, not {_kind(value)}")
        return
    options = schema.get("enum")
    if isinstance(options, (list, tuple)) and not any(_same(value, option) for option in options):
        found.append(f"{_name(place)} must be one of {_listing(options)}")
        return
    if isinstance(value, Mapping):
        _check_object(value, schema, place, found, depth)
    elif isinstance(value, (list, tuple)) and "prefixItems" not in schema:
        for index, item in enumerate(value):
            _check(item, schema.get("items"), f"{place}[{index}]", found, depth + 1)


def _check_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], place: str, found: list[str], depth: int
) -> None:
    known = schema.get("properties")
    properties: Mapping[str, Any] = known if isinstance(known, Mapping) else {}
    required = schema.get("required")
    if isinstance(required, (list, tuple)):
        for key in required:
            if key not in value:
                found.append(f"{_join(place, key)} is required and missing")
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for key, item in value.items():
        if key in properties:
            _check(item, properties[key], _join(place, key), found, depth + 1)
        elif closed:
            names = ", ".join(map(str, properties)) or "none"
            found.append(f"{_join(place, key)} is not a parameter (known: {names})")


def _is_one_of(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return _is(value, wanted)
    if isinstance(wanted, (list, tuple)):
        return any(isinstance(each, str) and _is(value, each) for each in wanted)
    return True


def _is(value: Any, name: str) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, (list, tuple))
        case "null":
            return value is None
        case _:
            return True


def _same(one: Any, other: Any) -> bool:
    """Equality as JSON has it: 1 is 1.0, but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _kind(value: Any) -> str:
    for name in ("null", "boolean", "string", "integer", "number", "object", "array"):
        if _is(value, name):
            return _article(name)
    return type(value).__name__


def _words(wanted: Any) -> str:
    names = [wanted] if isinstance(wanted, str) else [str(each) for each in wanted]
    return " or ".join(_article(name) for name in names)


def _article(name: str) -> str:
    if name == "null":
        return "null"
    return f"an {name}" if name[:1] in "aio" else f"a {name}"


def _listing(options: Sequence[Any]) -> str:
    shown = [repr(option) for option in options[:20]]
    return ", ".join(shown) + (", …" if len(options) > 20 else "")


def _join(place: str, key: Any) -> str:
    return f"{place}.{key}" if place else str(key)


def _name(place: str) -> str:
    return place or "the arguments"
