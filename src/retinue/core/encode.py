"""Event bodies as JSON. Any value can be encoded.

The output of a model or a tool can hold half a surrogate pair, numbers beyond 64 bits, or keys that are not text.
Values that JSON cannot express are replaced."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from retinue.core.events import Body, Event, EventPlace, Warned
from retinue.core.outcome import Outcome

_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""Characters that some readers take for the end of a line, and their JSON escapes."""
_encode = msgspec.json.Encoder().encode


def dump(value: Any) -> bytes:
    """Return any value as JSON."""
    try:
        return _encode(value)
    except (TypeError, ValueError):
        return _encode(plain(value))


def encode(body: Body) -> tuple[Body, bytes]:
    """Return a body as JSON, with the body that this JSON means: the same object, unless it holds a value that JSON
    cannot express."""
    try:
        return body, _encode(body)
    except (TypeError, ValueError):
        data = _encode(plain(body))
        return decode(data), data


def decode(text: str | bytes) -> Body:
    """Return the body of JSON. An event of a type that this version does not know becomes a warning, so that an older
    program can still show the other events. Raise ValueError for invalid JSON."""
    try:
        return _decoder().decode(text)
    except msgspec.ValidationError:
        data = msgspec.json.decode(text)
        if not isinstance(data, dict) or data.get("type") in _known_types():
            raise
        return Warned("unknown-event", f"an event of type {data.get('type')!r}, written by another version")


@cache
def _decoder() -> msgspec.json.Decoder[Body]:
    # Made for the first event: it resolves the annotations of all bodies, and most runs read none.
    return msgspec.json.Decoder(Body)


def is_known_type(kind: str) -> bool:
    """Return whether `kind` is the type of an event."""
    return kind in _known_types()


@cache
def _known_types() -> frozenset[object]:
    return frozenset(body.__struct_config__.tag for body in typing.get_args(Body))


def plain(value: Any) -> Any:
    """Return the nearest value that JSON can express."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {key: getattr(value, name) for key, name in names}
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
        return plain(tag | {key: item for key, item in fields.items() if item is not msgspec.UNSET})
    if isinstance(value, Mapping):
        return {replace_surrogates(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return replace_surrogates(str(value))


def replace_surrogates(text: str) -> str:
    """Return `text` with halves of characters (lone surrogates) replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def event_to_json(event: Event) -> bytes:
    """Return one event as one flat object on one line (no line feed): `type`, `run_id`, `parent_id`,
    `root_id`, `seq`, `at` and then the fields of its body."""
    return flat_json(event.body.type, event, dump(event.body))


def outcome_to_json(event: Event, outcome: Outcome) -> bytes:
    """Return the last line of a stream: the outcome, with the ids of the event that carried it."""
    return flat_json(outcome.type, event, dump(outcome))


def flat_json(kind: str, event: EventPlace, body: bytes) -> bytes:
    """Return the JSON of a body of type `kind` with the place of its event in it, on one line."""
    # Every body begins with `{"type":"…",`: the fields of the event follow it.
    head = len(kind) + 10
    fields = b',"run_id":%b,"parent_id":%b,"root_id":%b,"seq":%d,"at":%b' % (
        dump(event.run_id),
        dump(event.parent_id),
        dump(event.root_id),
        event.seq,
        repr(event.at).encode(),
    )
    line = body[:head] + fields + body[head:]
    for end, escaped in _LINE_ENDS:
        if end in line:
            line = line.replace(end, escaped)
    return line
