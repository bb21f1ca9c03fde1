"""Every dialect that Retinue reads, as tables. One is loaded when the first of its files is met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

from retinue.agents.dialects.table import Dialect, FieldKind, FieldRow, Match
from retinue.core.spec import DialectName

_NAMES: tuple[DialectName, ...] = (
    "retinue",
    "claude",
    "pi",
    "devkit",
    "codingcode",
    "opencode",
    "gemini",
    "copilot",
    "cursor",
    "generic",
    "kimi",
)


_OWN = ("retinue", "generic")


class _Dialects(Mapping[DialectName, Dialect]):
    """Each is a constant of its name in `tables`; those without a program of their own are in `rows`."""

    def __init__(self) -> None:
        self._loaded: dict[DialectName, Dialect] = {}

    def __getitem__(self, name: DialectName) -> Dialect:
        found = self._loaded.get(name)
        if found is None:
            if name not in _NAMES:
                raise KeyError(name)
            module = import_module(f"{__name__}.{'rows' if name in _OWN else 'tables'}")
            found = self._loaded[name] = cast(Dialect, getattr(module, name.upper()))
        return found

    def __iter__(self) -> Iterator[DialectName]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


DIALECTS: Mapping[DialectName, Dialect] = _Dialects()

__all__ = ["DIALECTS", "Dialect", "FieldKind", "FieldRow", "Match"]
