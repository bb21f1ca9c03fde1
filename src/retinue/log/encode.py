"""Event bodies to JSON and back, fast where it can be and never refusing.

What a model or a tool wrote can hold anything: half a character, numbers beyond 64 bits, keys
that are not text. It is written anyway, with what JSON cannot express replaced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from retinue.core.codec import from_union, to_data
from retinue.core.events import Body, Event, Warned
from retinue.core.outcome import Outcome

_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""Characters that some readers take for the end of a line, and their JSON escapes."""


def dump(value: Any) -> bytes:
    """Any domain value as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(plain(to_data(value)))


def encode(body: Body) -> tuple[Body, bytes]:
    """A body as JSON, with the body that this JSON means: the same one, unless it held what
    JSON cannot say."""
    try:
        return body, orjson.dumps(body)
    except TypeError:
        data = orjson.dumps(plain(to_data(body)))
        return from_union(Body, orjson.loads(data)), data


def decode(text: str | bytes) -> Body:
    """Read a body back. An event of a type this version does not know becomes a warning that
    says so, so that an older program can still show the rest. Raise ValueError for garbage."""
    data = orjson.loads(text)
    if not isinstance(data, dict):
        raise ValueError("an event body is not an object")
    try:
        body: Body = from_union(Body, data)
    except ValueError as error:
        if "unknown type" not in str(error):
            raise
        return Warned("unknown-event", f"an event of type {data.get('type')!r}, written by another version")
    return body


def plain(value: Any) -> Any:
    """The nearest thing that JSON can hold."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {whole(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return whole(str(value))


def whole(text: str) -> str:
    """`text` with halves of characters (lone surrogates) replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def event_to_json(event: Event) -> bytes:
    """One event as one flat object on one line (no line feed): `type`, `run_id`, `parent_id`,
    `root_id`, `seq`, `at` and then the fields of its body."""
    return _flat(event.body.type, event, dump(event.body))


def outcome_to_json(event: Event, outcome: Outcome) -> bytes:
    """The last line of a stream: the outcome, placed like the event that carried it."""
    return _flat("outcome", event, dump(outcome))


def _flat(kind: str, event: Event, body: bytes) -> bytes:
    parent = dump(event.parent_id) if event.parent_id is not None else b"null"
    head = b'{"type":"%b","run_id":%b,"parent_id":%b,"root_id":%b,"seq":%d,"at":%b' % (
        kind.encode(),
        dump(event.run_id),
        parent,
        dump(event.root_id),
        event.seq,
        repr(event.at).encode(),
    )
    # Every body ends with `,"type":"…"}`, written by us: here the line begins with it instead.
    line = head + b"," + body[1 : -len(kind) - 11] + b"}"
    for end, escaped in _LINE_ENDS:
        if end in line:
            line = line.replace(end, escaped)
    return line
