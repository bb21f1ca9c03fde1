"""The hash of a spec: the same content gives the same hash, wherever its file lies."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import orjson

from retinue.core.codec import to_data
from retinue.core.spec import AgentSpec

_ASIDE = frozenset({"source", "path", "fates", "problems", "hash"})
_PLAIN = AgentSpec(name="")
_DEFAULTS: Mapping[str, Any] = {
    field.name: getattr(_PLAIN, field.name)
    for field in dataclasses.fields(AgentSpec)
    if field.name not in (*_ASIDE, "name", "dialect")
}
_MISSING = object()
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def spec_hash(spec: AgentSpec) -> str:
    """sha256, hex, over every field that is not its default; where the spec came from and what
    became of the keys of its file do not count."""
    content = {}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name not in _ASIDE and _DEFAULTS.get(field.name, _MISSING) != value:
            content[field.name] = value
    try:
        data = orjson.dumps(content, option=_OPTIONS)
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits, which JSON text can hold
        data = json.dumps(to_data(content), sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


def seal(spec: AgentSpec) -> AgentSpec:
    """`spec` with its hash. A catalog of a thousand files leaves the hashing to whoever takes
    one of them; the value is the same whenever it is computed."""
    if not spec.hash:
        object.__setattr__(spec, "hash", spec_hash(spec))
    return spec
