"""Structured output: filling a schema as far as a search honestly can.

A search knows a file, a line, a quotation, a list of places and its report. A schema that asks
for anything else as required is left unfilled, and the planner says so instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from retinue.core.tool import ToolSpec
from retinue.models.offline.answer import Findings, best_line, quote, report
from retinue.models.offline.rank import Ranked

_FILE = frozenset("file path filepath filename location source".split())
_LINE = frozenset("line linenumber startline row".split())
_QUOTE = frozenset("quote snippet code text excerpt content match".split())
_REPORT = frozenset(
    "answer result summary report explanation description output message reason findings response".split()
)
_MANY = frozenset("files paths places locations matches results references occurrences findings sources".split())
_FOUND = frozenset("found exists success".split())

MOST = 5


def submit_tool(offered: Iterable[ToolSpec]) -> ToolSpec | None:
    return next((spec for spec in offered if spec.ends_run or spec.name == "submit_result"), None)


def fill(schema: Mapping[str, Any], findings: Findings) -> dict[str, Any] | None:
    """Arguments that match a simple schema, or None where they would have to be made up."""
    if not findings.ranked or findings.wish not in ("find",):
        return None
    filled = _object(schema, findings, findings.ranked[0])
    return filled if isinstance(filled, dict) and filled else None


def _object(schema: Mapping[str, Any], findings: Findings, one: Ranked) -> dict[str, Any] | None:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None
    filled: dict[str, Any] = {}
    for name, part in properties.items():
        value = _value(str(name), part if isinstance(part, Mapping) else {}, findings, one)
        if value is not None:
            filled[str(name)] = value
    required = schema.get("required") or ()
    return filled if all(name in filled for name in required) else None


def _value(name: str, schema: Mapping[str, Any], findings: Findings, one: Ranked) -> Any:
    kind = schema.get("type")
    kinds = set(kind) if isinstance(kind, list) else {kind}
    plain = name.lower().replace("_", "").replace("-", "")
    if "enum" in schema or "const" in schema or "pattern" in schema:
        return None
    if "object" in kinds:
        return _object(schema, findings, one)
    if "array" in kinds:
        return _array(plain, schema, findings)
    if "integer" in kinds or "number" in kinds:
        return best_line(one, findings.evidence) if plain in _LINE else None
    if "boolean" in kinds:
        return True if plain in _FOUND else None
    return _text(plain, findings, one) if "string" in kinds else None


def _text(plain: str, findings: Findings, one: Ranked) -> str | None:
    if plain in _FILE:
        return one.path
    if plain in _REPORT or plain == "value":
        return report(findings)
    number = best_line(one, findings.evidence)
    return quote(one.path, number, findings.evidence) if plain in _QUOTE and number is not None else None


def _array(plain: str, schema: Mapping[str, Any], findings: Findings) -> list[Any] | None:
    items = schema.get("items")
    if not isinstance(items, Mapping) or plain not in _MANY | {"value"}:
        return None
    most = min(MOST, int(schema.get("maxItems") or MOST))
    if items.get("type") == "string":
        return [one.path for one in findings.ranked[:most]]
    made = [_object(items, findings, one) for one in findings.ranked[:most]]
    kept = [one for one in made if one]
    return kept or None
