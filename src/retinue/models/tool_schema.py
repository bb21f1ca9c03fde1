"""The parameters of a tool as every provider accepts them.

Schemas of foreign tools (MCP servers, plugins) can have any form. A provider that refuses one schema refuses the
*whole* request, in every turn. These forms are refused, with the source of each:

    at the top: oneOf, anyOf, allOf       Anthropic (claude-code#40075, langchain#39271)
    at the top: also not, enum, const     OpenAI (opencode#32489: "schema must have type 'object'
                                          and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not'")
    an array without items                OpenAI ("array schema missing items")
    items as a list, required: true,      Anthropic ("must match JSON Schema draft 2020-12"): forms
    exclusiveMinimum: true                of drafts 3, 4 and 7
    const, discriminator, examples,       Gemini (pydantic-ai's GoogleJsonSchemaTransformer)
    exclusive bounds, formats of texts

Alternatives at the top are merged into one object. The description of the tool then states the lost condition in words,
and the tool still checks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

COMBINED = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("not", "enum", "const")
_REFUSED_AT_TOP = (*COMBINED, *_CONDITIONS, "$ref")
_MAX_SCHEMA_DEPTH = 24
_MAX_REFERENCES = 12
_MAX_FOLDS = 200
"""Schemas that are merged for one tool: references at the top can multiply without end."""
_MAX_CACHED_SCHEMAS = 1024
_MAX_CONDITION_CHARACTERS = 500
_KEYWORDS_OF_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_KEYWORDS_OF_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_KEYWORDS_OF_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")


class PortableSchema(NamedTuple):
    """A schema that all providers accept. `lost` are the conditions that it does not express, as text for the model."""

    parameters: dict[str, Any]
    lost: str = ""

    def described(self, description: str) -> str:
        """Return `description` with the lost conditions."""
        if not self.lost:
            return description
        return f"{description}\n{self.lost}".strip()


_cache: dict[int, tuple[Mapping[str, Any], PortableSchema]] = {}
_gemini_cache: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}


def portable_schema(parameters: Mapping[str, Any]) -> PortableSchema:
    """Return `parameters` in the form that all providers accept. Results are cached, because every turn sends every
    tool."""
    cached = _cache.get(id(parameters))
    if cached is not None and cached[0] is parameters:
        return cached[1]
    portable = _make(parameters)
    if len(_cache) >= _MAX_CACHED_SCHEMAS:
        _cache.clear()
    _cache[id(parameters)] = (parameters, portable)
    return portable


def gemini_parameters(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the portable schema in Gemini's dialect; None for a tool without parameters."""
    cached = _gemini_cache.get(id(parameters))
    if cached is None or cached[0] is not parameters:
        schema = _walk(portable_schema(parameters).parameters, _for_gemini, 0)
        if len(_gemini_cache) >= _MAX_CACHED_SCHEMAS:
            _gemini_cache.clear()
        cached = _gemini_cache[id(parameters)] = (parameters, schema)
    if cached[1].get("properties") or cached[1].get("additionalProperties"):
        return cached[1]
    return None


def folded_keywords(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keywords at the top of a schema that no provider would take there."""
    return tuple(key for key in (*COMBINED, *_CONDITIONS) if parameters.get(key))


def _make(parameters: Mapping[str, Any]) -> PortableSchema:
    folding = _Folding(parameters)
    root = folding.fold(parameters, 0)
    for key in _REFUSED_AT_TOP:
        root.pop(key, None)
    root["type"] = "object"
    if not isinstance(root.get("properties"), Mapping):
        root["properties"] = {}
    return PortableSchema(_walk(root, _modern, 0), " ".join(dict.fromkeys(folding.lost)))


# ------------------------------------------------------------------ the top
class _Folding:
    """Merges a schema with alternatives at its top into one object. `lost` collects the lost conditions."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.lost: list[str] = []
        self._root = root
        self._left = _MAX_FOLDS

    def fold(self, schema: Mapping[str, Any], depth: int, *, always: bool = True) -> dict[str, Any]:
        """Return one object. Keywords beside the alternatives override them. A condition of a schema that does not
        `always` apply is not reported, because it is not valid by itself."""
        self._left -= 1
        out = _follow_reference(schema, self._root)
        alternatives = [(key, _list(out.pop(key, None))) for key in COMBINED]
        for key in _CONDITIONS:
            condition = out.pop(key, None)
            if condition is not None and always:
                self.lost.append(_condition(key, condition))
        if depth > _MAX_REFERENCES:
            return out
        for key, members in alternatives:
            variants = []
            for member in members:
                if isinstance(member, Mapping) and self._left > 0:
                    variants.append(self.fold(member, depth + 1, always=always and key == "allOf"))
            if variants:
                self._merge(out, key, variants)
        return out

    def _merge(self, out: dict[str, Any], key: str, variants: list[dict[str, Any]]) -> None:
        out["properties"] = _merged_properties(out, variants)
        needs = [_names(variant.get("required")) for variant in variants]
        if key == "allOf":
            _require(out, chain.from_iterable(needs))
            # `additionalProperties: false` of one member would forbid what the others bring.
            if any(variant.get("additionalProperties") is False for variant in variants):
                out.setdefault("additionalProperties", False)
            return
        _require(out, [name for name in needs[0] if all(name in names for names in needs)])
        if sentence := _choice(key, needs):
            self.lost.append(sentence)


def _merged_properties(out: Mapping[str, Any], variants: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all properties of all variants; one that they describe differently may be either."""
    offered: dict[str, list[Any]] = {}
    for variant in variants:
        for name, child in _properties(variant).items():
            choices = offered.setdefault(str(name), [])
            if child not in choices:
                choices.append(child)
    merged: dict[str, Any] = {}
    for name, choices in offered.items():
        merged[name] = choices[0] if len(choices) == 1 else {"anyOf": choices}
    return {**merged, **_properties(out)}


def _require(out: dict[str, Any], names: Iterable[str]) -> None:
    all_required = dict.fromkeys((*_names(out.get("required")), *names))
    required = [name for name in all_required if name in _properties(out)]
    if required:
        out["required"] = required
    else:
        out.pop("required", None)


def _choice(key: str, needs: list[list[str]]) -> str:
    """Return the condition of a choice in words; empty if all variants require the same arguments."""
    if all(names == needs[0] for names in needs):
        return ""
    count = "exactly one" if key == "oneOf" else "at least one"
    sets = " or ".join(f"({', '.join(names)})" if names else "(nothing further)" for names in needs)
    return f"Give {count} of these sets of arguments: {sets}."


def _condition(key: str, value: Any) -> str:
    """Return a condition on the arguments as a whole, in words."""
    if key == "not" and isinstance(value, Mapping) and value.keys() == {"required"}:
        names = _names(value["required"])
        if len(names) == 1:
            return f"Do not give {names[0]}."
        if names:
            return f"Do not give all of these arguments at once: {', '.join(names)}."
    words = {"not": "must not match", "enum": "must be one of", "const": "must be"}
    return f"The arguments as a whole {words[key]} {json.dumps(value, default=str)[:_MAX_CONDITION_CHARACTERS]}."


def _follow_reference(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with the reference at its top resolved. Keywords beside the reference override those of its
    target, and the properties of both are kept."""
    for _ in range(_MAX_REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return dict(schema)
        target: Any = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) and step else target
        if not isinstance(target, Mapping) or target is schema:
            target = {}
        beside = dict(schema)
        del beside["$ref"]
        properties = {**_properties(target), **_properties(beside)}
        schema = {**target, **beside}
        if properties:
            schema["properties"] = properties
    others = dict(schema)
    others.pop("$ref", None)
    return others


# ------------------------------------------------------------------ the whole tree
def _walk(schema: Any, change: Any, depth: int) -> Any:
    """Return a copy in which `change` was applied to every schema, the outer ones first."""
    if not isinstance(schema, Mapping):
        return schema
    if depth > _MAX_SCHEMA_DEPTH:
        return {}
    out = change(dict(schema))
    for key in _KEYWORDS_OF_MAPS:
        if isinstance(out.get(key), Mapping):
            out[key] = {str(name): _walk(child, change, depth + 1) for name, child in out[key].items()}
    for key in _KEYWORDS_OF_LISTS:
        if isinstance(out.get(key), list):
            out[key] = [_walk(child, change, depth + 1) for child in out[key]]
    for key in _KEYWORDS_OF_SCHEMAS:
        if isinstance(out.get(key), Mapping):
            out[key] = _walk(out[key], change, depth + 1)
    return out


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in the form of draft 2020-12, without keywords that have no meaning there."""
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
    kinds = schema.get("type")
    if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
        schema.setdefault("items", {})
    for key, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(key), bool):
            exclusive = schema.pop(key)
            if exclusive and plain in schema:
                schema[key] = schema.pop(plain)
    if "required" in schema:
        names = _names(schema.pop("required"))
        if names:
            schema["required"] = list(dict.fromkeys(names))
    for key in COMBINED:
        if key in schema and not (isinstance(schema[key], list) and schema[key]):
            del schema[key]
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        del schema["enum"]
    return schema


def _for_gemini(schema: dict[str, Any]) -> dict[str, Any]:
    for key in ("$schema", "discriminator", "examples", "exclusiveMinimum", "exclusiveMaximum"):
        schema.pop(key, None)
    if "const" in schema:
        const = schema.pop("const")
        schema["enum"] = [const]
        kind = _JSON_TYPES.get(type(const))
        if kind is not None:
            schema.setdefault("type", kind)
    if schema.get("type") == "string" and isinstance(schema.get("format"), str):
        words = f"Format: {schema.pop('format')}."
        before = schema.get("description")
        schema["description"] = f"{before} {words}" if before else words
    if isinstance(schema.get("required"), list):
        schema["required"] = [name for name in schema["required"] if name in _properties(schema)]
        if not schema["required"]:
            del schema["required"]
    return schema


_JSON_TYPES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        return properties
    return {}


def _names(value: Any) -> list[str]:
    return [name for name in _list(value) if isinstance(name, str)]


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []
