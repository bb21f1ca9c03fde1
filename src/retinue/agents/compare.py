"""Where two specs differ in what they say, wherever they came from."""

from __future__ import annotations

import dataclasses

from retinue.agents.guess import by_place
from retinue.agents.parse import parse
from retinue.agents.parsed import Parsed
from retinue.core.spec import AgentSpec

ASIDE = frozenset({"source", "path", "dialect", "fates", "problems", "hash"})
_PARTS = ("tools", "model", "session")


def differences(old: AgentSpec, new: AgentSpec) -> tuple[str, ...]:
    """The fields that differ, dotted for parts of tools, model and session."""
    found: list[str] = []
    for field in dataclasses.fields(AgentSpec):
        left, right = getattr(old, field.name), getattr(new, field.name)
        if field.name in ASIDE or left == right:
            continue
        if field.name in _PARTS:
            parts = dataclasses.fields(left)
            found += (f"{field.name}.{p.name}" for p in parts if getattr(left, p.name) != getattr(right, p.name))
        else:
            found.append(field.name)
    return tuple(found)


def value_of(spec: AgentSpec, path: str) -> object:
    """The field that `differences` named."""
    value: object = spec
    for part in path.split("."):
        value = getattr(value, part)
    return value


def reread(before: Parsed, data: bytes) -> Parsed:
    """What the file `before` was read from would mean with this content instead."""
    source = before.spec.source if before.spec is not None else "project"
    dialect = before.dialect if by_place(before.file) is None else None
    return parse(data, path=before.file, dialect=dialect, source=source)
