"""Keeps secrets out of the log, of notifications and of parents.

The log hands every event body through a `Redactor` before it is written or shown. Most have no
secret: that is found out by searching their JSON, and costs microseconds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from retinue.core.events import Body, TurnEnded, TurnStarted
from retinue.core.messages import Document, Image, Text, Thinking, ToolCall
from retinue.guard.redact_stream import WORD_CHARACTERS, RedactedStream
from retinue.guard.secret_tokens import SHORTEST_TOKEN, tokens
from retinue.guard.secrets import (
    FAMILIES,
    KEY_BEGIN,
    REDACTED,
    Family,
    Rule,
    Span,
    compiled,
    cut_out,
    private_keys,
    secret_values,
)

_LITTLE = 1_000
"""In less text than this nothing is quicker than to look for each word."""

_OPAQUE: dict[type, frozenset[str]] = {
    Image: frozenset({"data"}),
    Document: frozenset({"data"}),
    Text: frozenset({"signature"}),
    Thinking: frozenset({"signature", "redacted"}),
    ToolCall: frozenset({"signature"}),
}
"""Fields that must go back to a provider byte by byte, and cannot hold what a person typed."""


class Redactor:
    """Knows the shapes of secrets, and those of this process by heart: the values of secret
    variables in `environment`. Deterministic, and applying it twice changes nothing."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        values = secret_values(environment or {})
        self._characters = "".join({*WORD_CHARACTERS, *"".join(values)})
        self._families = tuple(_literally(value) for value in _spellings(values)) + FAMILIES

    def __call__(self, text: str) -> str:
        """`text` without secrets; the very same object if there are none."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self._clean(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def body(self, body: Body, encoded: bytes) -> Body:
        """`body` without secrets; the very same object if there are none. `encoded` is its JSON."""
        if isinstance(body, (TurnStarted, TurnEnded)):
            return body
        if not self.suspects(encoded):
            return body
        clean: Body = self.data(body)
        return clean

    def suspects(self, encoded: bytes) -> bool:
        """Whether the JSON of a value holds anything to take out: much cheaper than looking at
        every part of it."""
        return next(self._found(encoded), None) is not None

    def data(self, value: Any) -> Any:
        """Plain data or a domain value without secrets; what has none stays the same object."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (tuple, list)):
            items = [self.data(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else tuple(items) if isinstance(value, tuple) else items
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._fields(value)
        return value

    def stream(self) -> RedactedStream:
        """For text that arrives in pieces."""
        return RedactedStream(self, self._characters)

    def _clean(self, data: bytes) -> bytes:
        if KEY_BEGIN in data:
            data = cut_out(data, private_keys(data))
        low = data.lower()
        for family in self._worth_a_look(low):
            found = family.spans(data, low)
            if found:
                data = cut_out(data, found)
                low = data.lower()
        return cut_out(data, tokens(data)) if len(data) >= SHORTEST_TOKEN else data

    def _worth_a_look(self, low: bytes) -> Sequence[Family]:
        return self._families if len(low) > _LITTLE else [each for each in self._families if each.word in low]

    def _found(self, data: bytes) -> Iterator[Span]:
        low = data.lower()
        for family in self._worth_a_look(low):
            yield from family.spans(data, low)
        yield from tokens(data)
        if KEY_BEGIN in data:
            yield from private_keys(data)

    def _fields(self, value: Any) -> Any:
        opaque = _OPAQUE.get(type(value), frozenset())
        changed = {}
        for field in dataclasses.fields(value):
            if field.init and field.name not in opaque:
                old = getattr(value, field.name)
                new = self.data(old)
                if new is not old:
                    changed[field.name] = new
        return dataclasses.replace(value, **changed) if changed else value

    def _mapping(self, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
        result: dict[Any, Any] = {}
        same = True
        for key, old in value.items():
            new_key = self(key) if isinstance(key, str) else key
            new = REDACTED.decode() if self._hides(key, old) else self.data(old)
            same = same and new is old and new_key is key
            result[new_key] = new
        return value if same else result

    def _hides(self, key: Any, value: Any) -> bool:
        """Whether a value is secret because of the name it has: `{"api_key": "…"}`."""
        if not isinstance(key, str) or not isinstance(value, str):
            return False
        member = f'"{key}": "'
        return self(f'{member}{value}"').startswith(f"{member}{REDACTED.decode()}") and value != REDACTED.decode()


def _spellings(values: tuple[str, ...]) -> tuple[str, ...]:
    """Each value as it is and as JSON writes it inside a string."""
    escaped = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return tuple(dict.fromkeys([*values, *escaped]))


def _literally(value: str) -> Family:
    data = value.encode("utf-8", "surrogatepass")
    return Family(data.lower(), (Rule(b"(?P<hide>" + re.escape(data) + b")", folded=False),))


_LOOSE = (
    rb"(?:api|auth|access|secret|client|refresh|private|session)[_-]?(?:key|token|secret)"
    rb"[\"'\\]{0,4}[ \t]{0,8}[:=][ \t]{0,8}[\"'\\]{0,4}[a-z0-9_+/=-]"
)


def contains_secret(text: str) -> bool:
    """Whether text has a secret, or what looks like one: a key with any value at all."""
    low = text.encode("utf-8", "surrogatepass").lower()
    return compiled(_LOOSE).search(low) is not None or Redactor()(text) is not text
