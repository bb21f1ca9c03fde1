"""Settings as texts: how an environment variable or a word of the command line is understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.settings.field import Field
from retinue.settings.kinds import Choice, Flag, Text, Texts

_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off"})


def raw_value(field: Field, text: str) -> Any:
    """`text` as the JSON value a file would hold. Not checked here: the field's kind does that."""
    word = text.strip().lower()
    if isinstance(field.kind, Flag):
        return True if word in _YES else False if word in _NO else text
    if isinstance(field.kind, Choice):
        return {"true": True, "false": False}.get(word, text) if field.kind.also else text
    if isinstance(field.kind, Text):
        return False if word == "false" and field.kind.false_words else text
    if field.name == "sandbox.network" and word in ("off", "on"):
        return word
    if isinstance(field.kind, Texts) and not word.startswith("["):
        return [part for part in text.split(",") if part.strip()]
    return _json(text)


def variable_of(field: Field, environment: Mapping[str, str]) -> str | None:
    """The variable that sets `field`: the first of its names that is there and not empty."""
    for name in field.variables:
        value = environment.get(name, "").strip()
        if value and not (field.attribute == "model" and value == "inherit"):
            return name
    return None


def _json(text: str) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
