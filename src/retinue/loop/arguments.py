"""A first check of a call's arguments, and what a model is told about a call that was not run.

The check covers types, required names, enums and unknown names, in words a model can act on, without
importing a validator. It never refuses what the schema allows: parts it does not know (anyOf, $ref,
…) it leaves to the tool, which validates for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from retinue.core.messages import StopReason, ToolCall
from retinue.core.tool import ToolSpec
from retinue.core.toolnames import canonical

_MOST_SHOWN = 8
_DEEPEST = 32
LEFT_TO_THE_TOOL = frozenset({"$ref", "anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef"})


def problem(arguments: Any, schema: Any) -> str | None:
    """Return the first few things wrong with `arguments`, or None."""
    found: list[str] = []
    _check(arguments, schema, "", found, 0)
    if not found:
        return None
    shown = found[:_MOST_SHOWN]
    if len(found) > _MOST_SHOWN:
        shown.append(f"… and {len(found) - _MOST_SHOWN} more")
    return "; ".join(shown)


def fits(value: Any, schema: Any) -> bool:
    """Return whether `value` has a type that `schema` allows; its parts are not looked at."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    return wanted is None or _is_one_of(value, wanted)


def _check(value: Any, schema: Any, position: str, found: list[str], depth: int) -> None:
    if not isinstance(schema, Mapping) or depth > _DEEPEST or not LEFT_TO_THE_TOOL.isdisjoint(schema):
        return
    wanted = schema.get("type")
    if wanted is not None and not _is_one_of(value, wanted):
        found.append(f"{_name(position)} must be {_words(wanted)}, not {_kind(value)}")
        return
    options = schema.get("enum")
    if isinstance(options, (list, tuple)) and not any(_same(value, option) for option in options):
        found.append(f"{_name(position)} must be one of {_listing(options)}")
        return
    if isinstance(value, Mapping):
        _check_object(value, schema, position, found, depth)
    elif isinstance(value, (list, tuple)) and "prefixItems" not in schema:
        for index, item in enumerate(value):
            _check(item, schema.get("items"), f"{position}[{index}]", found, depth + 1)


def _check_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], position: str, found: list[str], depth: int
) -> None:
    known = schema.get("properties")
    properties: Mapping[str, Any] = known if isinstance(known, Mapping) else {}
    required = schema.get("required")
    if isinstance(required, (list, tuple)):
        for key in required:
            if key not in value:
                found.append(f"{_join(position, key)} is required and missing")
    # Patterns of names are left to the tool.
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for key, item in value.items():
        if key in properties:
            _check(item, properties[key], _join(position, key), found, depth + 1)
        elif closed:
            names = ", ".join(map(str, properties)) or "none"
            found.append(f"{_join(position, key)} is not a parameter (known: {names})")


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


def _words(wanted: Any) -> str:
    if isinstance(wanted, str):
        return _article(wanted)
    return " or ".join(map(_article, map(str, wanted)))


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


def _join(position: str, key: Any) -> str:
    return f"{position}.{key}" if position else str(key)


def _name(position: str) -> str:
    return position or "the arguments"


LIMIT = "Not run: this run has used all its tool calls. Give your final answer from what you know."
AFTER_ANSWER = "Not run: the result had already been handed in."
NOT_RUN = "Not run: the run was stopped before this call started."
STOPPED = "Stopped while running: whether it took effect is not known. Check before you repeat it."
CANCELLED = "The tool cancelled itself; whether it took effect is not known. Check before you repeat it."

_SHOWN = 200
_NAMED = 60


def reason(
    call: ToolCall, stop: StopReason, tools: Mapping[str, ToolSpec], absent: Callable[[str], str] = lambda name: ""
) -> str | None:
    """Return why `call` cannot be run, or None. `absent` says why a run lacks a tool."""
    spec = tools.get(call.name)
    if spec is None:
        return _unknown(call.name, tools, absent)
    if call.broken is not None:
        return _broken(call, stop)
    for name, why in spec.unavailable.items():
        if name in call.arguments:
            return f"Not run: {call.name} has no {name} here: {why}. Call it again without {name}."
    wrong = problem(call.arguments, schema_of(spec))
    if wrong is not None:
        return f"Not run: the arguments do not fit {call.name}: {wrong}. Correct them and call it again."
    return None


def schema_of(spec: ToolSpec) -> Mapping[str, Any]:
    """Return the schema of all that a tool accepts, which may be more than models are shown."""
    return spec.parameters if spec.spellings is None else spec.spellings.schema


def _unknown(name: str, tools: Mapping[str, ToolSpec], absent: Callable[[str], str]) -> str:
    shown = [spec.name for spec in tools.values() if spec.shown]
    offered = ", ".join(shown[:_NAMED]) or "none"
    if len(shown) > _NAMED:
        offered += f" and {len(shown) - _NAMED} more"
    meant = canonical(name)
    several = list(filter(tools.__contains__, meant))
    if several:
        return f"Not run: {name[:_SHOWN]!r} could be any of {', '.join(several)}. Call the one you mean."
    known = meant[0] if meant else name[:_SHOWN]
    why = absent(known)
    if meant and not why:
        why = "your definition does not give it to you."
    if why:
        return f"Not run: {known} is not among your tools: {why} The tools you have: {offered}."
    return f"There is no tool named {name[:_SHOWN]!r}. The tools you have: {offered}."


def timed_out(seconds: float) -> str:
    return (
        f"Stopped after {seconds:g} seconds, the longest one call may take; whether it took effect is not known. "
        "Try a smaller step, or one that does not wait."
    )


def defect(name: str, why: str) -> str:
    return f"The tool {name} failed inside, through no fault of yours ({why}). Try another way."


def _broken(call: ToolCall, stop: StopReason) -> str:
    if stop == "length":
        return (
            "Not run: your answer was cut off at the output limit in the middle of this call. "
            "Do it again in smaller pieces, with less text per call."
        )
    shown = call.broken or ""
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "…"
    return f"Not run: the arguments are not a JSON object: {shown!r}. Call {call.name} again with valid JSON."
