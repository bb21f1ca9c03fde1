"""JSON Schema cut down to what Gemini's function declarations understand.

What has an equivalent is translated (`const`, `oneOf`, nullable types, references), the rest is
left out: a parameter described a little less precisely beats a request that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEPT = (
    "title",
    "description",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "pattern",
    "default",
)
_FORMATS = {"string": ("date-time",), "number": ("float", "double"), "integer": ("int32", "int64")}
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_DEEPEST = 12
_MOST = 2000
"""Nodes of the result. References are written out, and a few of them can multiply without end."""


def gemini_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Parameters for a function declaration; None for a function that takes none."""
    root = _Translation(schema).node(schema, 0)
    return root if root.get("properties") else None


class _Translation:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST

    def node(self, schema: Any, depth: int) -> dict[str, Any]:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return {"type": "object"}
        if not isinstance(schema, Mapping):
            return {}
        schema = self._flat(schema, depth)
        out: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
        kind, nullable = _type(schema)
        options = schema.get("anyOf") or schema.get("oneOf") or _alternatives(schema)
        if isinstance(options, list):
            plain = [option for option in options if _type(option) != ("null", True)]
            nullable = nullable or len(plain) < len(options)
            if len(plain) == 1:
                out = {**self.node(plain[0], depth + 1), **out}
            elif plain:
                out["anyOf"] = [self.node(option, depth + 1) for option in plain]
        if nullable:
            out["nullable"] = True
        if kind in _TYPES:
            out["type"] = kind
        self._values(schema, out)
        self._children(schema, out, depth)
        return out

    def _flat(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """References followed and `allOf` merged; what stands beside them wins."""
        for _ in range(_DEEPEST):
            self._left -= 1
            if self._left < 0:
                return {}
            reference, members = schema.get("$ref"), schema.get("allOf")
            if isinstance(reference, str):
                target = self._resolve(reference) if depth <= _DEEPEST else {}
                schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
            elif isinstance(members, list):
                merged: dict[str, Any] = {}
                for member in members:
                    if isinstance(member, Mapping):
                        inner = self._flat(member, depth + 1)
                        merged = {**merged, **inner, "properties": {**_props(merged), **_props(inner)}}
                beside = {k: v for k, v in schema.items() if k != "allOf"}
                schema = {**merged, **beside, "properties": {**_props(merged), **_props(beside)}}
                if not schema["properties"]:
                    del schema["properties"]
            else:
                return schema
        return {}

    def _resolve(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    @staticmethod
    def _values(schema: Mapping[str, Any], out: dict[str, Any]) -> None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            texts = [value for value in values if isinstance(value, str) and value]
            if len(texts) == len([value for value in values if value is not None]) and texts:
                out["enum"], out["type"] = texts, "string"
            else:
                said = f"One of: {', '.join(map(str, values))}."
                out["description"] = f"{out['description']} {said}" if out.get("description") else said
        if schema.get("format") in _FORMATS.get(out.get("type", ""), ()):
            out["format"] = schema["format"]

    def _children(self, schema: Mapping[str, Any], out: dict[str, Any], depth: int) -> None:
        properties = _props(schema)
        if properties:
            out["type"] = "object"
            out["properties"] = {str(name): self.node(child, depth + 1) for name, child in properties.items()}
            names = schema.get("required")
            required = [name for name in properties if isinstance(names, list) and name in names]
            if required:
                out["required"] = required
        if out.get("type") == "array":
            items = schema.get("items")
            if not isinstance(items, Mapping):
                prefix = schema.get("prefixItems")
                items = prefix[0] if isinstance(prefix, list) and prefix else {"type": "string"}
            out["items"] = self.node(items, depth + 1) or {"type": "string"}


def _props(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _alternatives(schema: Mapping[str, Any]) -> list[Any] | None:
    """Several types in one list, as the choice they mean."""
    kinds = schema.get("type")
    named = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else []
    return [{"type": kind} for kind in named] if len(named) > 1 else None


def _type(schema: Any) -> tuple[str, bool]:
    """The one type and whether null is allowed too."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, list):
        rest = [one for one in kind if one != "null"]
        return (str(rest[0]) if len(rest) == 1 else "" if rest else "null"), "null" in kind
    return str(kind or "").lower(), kind == "null" or bool(isinstance(schema, Mapping) and schema.get("nullable"))
