"""A first check of tool arguments against their JSON Schema, with problems in words that a model can act on.

The check covers types, required names, enums and unknown names, without importing a validator. It never refuses a value
that the schema allows: keywords it does not know (anyOf, $ref, …) are left to the tool, which validates for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MAX_PROBLEMS = 8
MAX_DEPTH = 32
LEFT_TO_THE_TOOL = frozenset({"$ref", "anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef"})


def problem(arguments: Any, schema: Any) -> str | None:
    """Return the first few things wrong with `arguments`, or None."""
    problems: list[str] = []
    _check(arguments, schema, "", problems, 0)
    if not problems:
        return None
    shown = problems[:_MAX_PROBLEMS]
    if len(problems) > _MAX_PROBLEMS:
        shown.append(f"… and {len(problems) - _MAX_PROBLEMS} more")
    return "; ".join(shown)


def fits(value: Any, schema: Any) -> bool:
    """Return whether `value` has a type that `schema` allows. Its items are not checked."""
    types = schema.get("type") if isinstance(schema, Mapping) else None
    return types is None or _is_one_of(value, types)


def _check(value: Any, schema: Any, position: str, problems: list[str], depth: int) -> None:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH or not LEFT_TO_THE_TOOL.isdisjoint(schema):
        return
    types = schema.get("type")
    if types is not None and not _is_one_of(value, types):
        problems.append(f"{_name(position)} must be {_type_names(types)}, not {_kind(value)}")
        return
    options = schema.get("enum")
    if isinstance(options, (list, tuple)) and not any(_same(value, option) for option in options):
        problems.append(f"{_name(position)} must be one of {_listing(options)}")
        return
    if isinstance(value, Mapping):
        _check_object(value, schema, position, problems, depth)
    elif isinstance(value, (list, tuple)) and "prefixItems" not in schema:
        for index, item in enumerate(value):
            _check(item, schema.get("items"), f"{position}[{index}]", problems, depth + 1)


def _check_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], position: str, problems: list[str], depth: int
) -> None:
    declared = schema.get("properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    required = schema.get("required")
    if isinstance(required, (list, tuple)):
        for key in required:
            if key not in value:
                problems.append(f"{join(position, key)} is required and missing")
    # The tool itself checks patterns of names.
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for key, item in value.items():
        if key in properties:
            _check(item, properties[key], join(position, key), problems, depth + 1)
        elif closed:
            names = ", ".join(map(str, properties)) or "none"
            problems.append(f"{join(position, key)} is not a parameter (known: {names})")


def _is_one_of(value: Any, types: Any) -> bool:
    if isinstance(types, str):
        return _is(value, types)
    if isinstance(types, (list, tuple)):
        return any(isinstance(name, str) and _is(value, name) for name in types)
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
    """Return whether two values are equal in JSON: 1 is 1.0, but not true."""
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


def _type_names(types: Any) -> str:
    if isinstance(types, str):
        return _article(types)
    return " or ".join(map(_article, map(str, types)))


def _article(name: str) -> str:
    if name == "null":
        return "null"
    if name[:1] in "aio":
        return f"an {name}"
    return f"a {name}"


def _listing(options: Sequence[Any]) -> str:
    shown = list(map(repr, options[:20]))
    if len(options) > 20:
        shown.append("…")
    return ", ".join(shown)


def join(position: str, key: Any) -> str:
    return f"{position}.{key}" if position else str(key)


def _name(position: str) -> str:
    return position or "the arguments"
