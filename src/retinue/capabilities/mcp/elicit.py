"""A server asks the person something: one question at a time, with a way to say no.

A form becomes one question per field. The answer to each is checked against what the server
asked for; a wrong one is asked again. Nobody there, or nobody who answers: the server is told
that the question was cancelled. Secrets are never asked for: that is what the protocol says, and
the question says who wants to know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.lean import dataclass

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

DECLINE = "decline"
DONE = "done"
_MOST_FIELDS = 20
_ATTEMPTS = 3
_LENGTH = 2_000


@dataclass(frozen=True, slots=True)
class Question:
    """`options` empty means free text."""

    title: str
    detail: str = ""
    options: tuple[str, ...] = ()


Ask = Callable[[Question], Awaitable[str | None]]
"""Puts a question to a person. None when it was not answered."""


async def answer(server: str, params: ElicitRequestParams, ask: Ask) -> ElicitResult:
    from mcp_types import ElicitResult

    message = params.message[:_LENGTH]
    if params.mode == "url":
        detail = f"{message}\n\nOpen this address yourself if you trust it: {params.url[:_LENGTH]}"
        said = await ask(Question(f"The MCP server {server} wants you to open a page", detail, (DONE, DECLINE)))
        return ElicitResult(action="accept" if said == DONE else "cancel" if said is None else "decline")
    schema = params.requested_schema
    properties = schema.get("properties")
    fields = dict(properties) if isinstance(properties, Mapping) else {}
    if len(fields) > _MOST_FIELDS:
        return ElicitResult(action="decline")
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    title = f"The MCP server {server} asks: {message}"
    if not fields:
        said = await ask(Question(title, "", ("accept", DECLINE)))
        return ElicitResult(action="accept", content={}) if said == "accept" else _refused(said)
    content: dict[str, Any] = {}
    for number, (name, field) in enumerate(fields.items(), 1):
        field = field if isinstance(field, Mapping) else {}
        place = f" ({number} of {len(fields)})" if len(fields) > 1 else ""
        value = await _field(title, place, str(name), field, str(name) in needed, ask)
        if isinstance(value, _Refused):
            return _refused(value.said)
        if value is not None:
            content[str(name)] = value
    return ElicitResult(action="accept", content=content)


@dataclass(frozen=True, slots=True)
class _Refused:
    said: str | None


def _refused(said: str | None) -> ElicitResult:
    from mcp_types import ElicitResult

    return ElicitResult(action="cancel" if said is None else "decline")


async def _field(title: str, place: str, name: str, field: Mapping[str, Any], needed: bool, ask: Ask) -> Any:
    """The value, None for a field left empty, or _Refused."""
    label = str(field.get("title") or name)
    options = _options(field)
    hint = str(field.get("description") or "")[:_LENGTH]
    for _ in range(_ATTEMPTS):
        skip = "" if needed else " (empty: leave it out)"
        said = await ask(Question(f"{title}{place}", f"{label}: {hint}{skip}".strip(), options))
        if said is None or said.strip().lower() == DECLINE:
            return _Refused(said)
        if not said.strip() and not needed:
            return field.get("default")
        value = _value(said.strip(), field)
        if value is not None:
            return value
        hint = f"'{said.strip()[:80]}' does not fit; a {field.get('type', 'string')} is wanted."
    return _Refused(None)


def _options(field: Mapping[str, Any]) -> tuple[str, ...]:
    if field.get("type") == "boolean":
        return ("yes", "no", DECLINE)
    choices = field.get("enum")
    if isinstance(choices, list) and choices:
        return (*map(str, choices), DECLINE)
    return ()


def _value(text: str, field: Mapping[str, Any]) -> Any:
    """The answer as the type that the field has; None when it cannot be."""
    try:
        match field.get("type"):
            case "boolean":
                return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case _:
                choices = field.get("enum")
                return text if not isinstance(choices, list) or text in map(str, choices) else None
    except ValueError:
        return None
