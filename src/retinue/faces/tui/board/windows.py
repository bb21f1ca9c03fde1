"""How large the context of a model is: from the table of known models and the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.faces.tui.board.cards import Window


def known_windows(overrides: Mapping[str, Mapping[str, Any]] | None = None) -> Window:
    """None for a model that neither knows: a share of a guess would be a guess. `overrides` is
    the setting `models`."""
    found: dict[str, int | None] = {}

    def window(model: str) -> int | None:
        if model not in found:
            found[model] = _window(model, overrides or {})
        return found[model]

    return window


def _window(model: str, overrides: Mapping[str, Mapping[str, Any]]) -> int | None:
    from retinue.models.known import known_model

    provider, _, name = model.partition("/")
    said = (overrides.get(model) or overrides.get(name) or {}).get("window")
    if isinstance(said, int) and said > 0:
        return said
    info = known_model(provider, name) if name else None
    return info.window if info is not None else None
