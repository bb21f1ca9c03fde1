"""JSON Schemas of settings files and of the frontmatter of agent files, for editors (src/retinue/builtin/schemas)."""

from __future__ import annotations

import json
from typing import Any

from retinue.agents.dialects.tables import DIALECTS
from retinue.settings.field import (
    Anything,
    Choice,
    Either,
    Field,
    Flag,
    Items,
    Kind,
    Number,
    Record,
    Table,
    Texts,
    TextValue,
    Whole,
)
from retinue.settings.table import fields

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def settings_schema() -> str:
    """Return the schema of settings.json, from the table of settings."""
    root: dict[str, Any] = {
        "$schema": DRAFT,
        "title": "Settings of Retinue",
        "description": "RETINUE_HOME/settings.json, .retinue/settings.json and .retinue/settings.local.json",
        "type": "object",
        "properties": {"$schema": {"type": "string"}},
    }
    for field in fields().values():
        _put(root, field.name.split("."), _setting(field))
        for alias in field.aliases:
            same = {"description": f"The same as {field.name}.", "deprecated": True}
            _put(root, alias.name.split("."), same)
    return _text(root)


def _put(level: dict[str, Any], steps: list[str], schema: dict[str, Any]) -> None:
    *groups, last = steps
    for group in groups:
        level = level.setdefault("properties", {}).setdefault(group, {"type": "object"})
    # A name may be a setting and a group of others: `hooks` and `hooks.failOpen`.
    level.setdefault("properties", {}).setdefault(last, {}).update(schema)


def _setting(field: Field) -> dict[str, Any]:
    schema = {"description": f"{field.doc} (Accepts {field.kind.accepts}.)", **_kind(field.kind)}
    if field.default is not None:
        schema["default"] = list(field.default) if isinstance(field.default, tuple) else field.default
    return schema


def _kind(kind: Kind) -> dict[str, Any]:
    match kind:
        case Flag():
            return {"type": "boolean"}
        case Whole():
            return {"type": "integer", "minimum": kind.low, "maximum": kind.high}
        case Number():
            return {"type": "number", "minimum": kind.low, "maximum": kind.high}
        case Choice():
            return {"enum": [*kind.words, *kind.also]}
        case TextValue():
            return {"type": ["string", "boolean"]} if kind.false_words else {"type": "string"}
        case Texts():
            entry: dict[str, Any] = {"enum": list(kind.allowed)} if kind.allowed else {"type": "string"}
            return {"type": "array", "items": entry}
        case Record():
            inner = {name: _kind(each) for name, each in kind.fields.items()}
            return {"type": "object", "properties": inner, "additionalProperties": False}
        case Table():
            return {"type": "object", "additionalProperties": _kind(kind.kind)}
        case Items():
            return {"type": "array", "items": _kind(kind.kind)}
        case Either():
            return {"anyOf": [_kind(kind.text), _kind(kind.other)]}
        case Anything():
            return {}
        case _:
            # A kind of its own, which the description explains.
            return {}


NAMES: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
SWITCH: dict[str, Any] = {"enum": [True, False, "yes", "no", "on", "off", "true", "false", 1, 0]}


def agent_schema() -> str:
    """Return the schema of the frontmatter: one definition for each dialect, Retinue's own at the top."""
    definitions: dict[str, Any] = {}
    for dialect in DIALECTS.values():
        properties: dict[str, Any] = {}
        for row in dialect.fields:
            note = f" {row.note}" if row.note else ""
            for key in row.spellings:
                properties.setdefault(key, {"description": f"{row.type}.{note}", **_frontmatter(row.type)})
        required = []
        if dialect.name_rule == "required":
            required.append("name")
        if dialect.description_required:
            required.append("description")
        definitions[dialect.name] = {
            "title": dialect.title,
            "type": "object",
            "properties": {"$schema": {"type": "string"}, **properties},
            "required": required,
        }
    root = {
        "$schema": DRAFT,
        "title": "Frontmatter of agent files",
        "description": "Retinue's own; the other dialects are under $defs, such as #/$defs/claude",
        "$ref": "#/$defs/retinue",
        "$defs": definitions,
    }
    return _text(root)


def _frontmatter(kind: str) -> dict[str, Any]:
    if kind == "text":
        return {"type": ["string", "number", "boolean"]}
    if kind.startswith("true or false"):
        return SWITCH
    if kind.startswith("one of "):
        return {"enum": kind.removeprefix("one of ").split(", ")}
    if kind.startswith("whole number"):
        return {"type": ["integer", "string"]}
    if kind.startswith("number"):
        return {"type": ["number", "string"]}
    if kind.startswith("level: "):
        return {"enum": [*kind.removeprefix("level: ").split(", "), False, True]}
    if kind == "append or replace":
        return {"enum": ["append", "replace"]}
    if kind.startswith(("names: ", "tool names: comma text or list", "name of a model")):
        return NAMES
    if kind == "mapping of events to handlers":
        return {"type": "object"}
    return {}


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, indent=1) + "\n"
