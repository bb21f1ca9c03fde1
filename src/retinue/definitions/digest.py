"""The hash of a spec: the same content gives the same hash, wherever its file lies."""

from __future__ import annotations

import dataclasses
import hashlib

import orjson

from retinue.domain.spec import AgentSpec

_ASIDE = frozenset({"source", "path", "fates", "hash"})
_DEFAULTS = {
    each.name: each.default if each.default is not dataclasses.MISSING else None
    for each in dataclasses.fields(AgentSpec)
    if each.name not in _ASIDE
}
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def spec_hash(spec: AgentSpec) -> str:
    """sha256, hex, over every field that is not its default; where the spec came from and what
    became of its keys do not count."""
    content = {}
    for name, default in _DEFAULTS.items():
        value = getattr(spec, name)
        if value != default:
            content[name] = value
    return hashlib.sha256(orjson.dumps(content, option=_OPTIONS)).hexdigest()
