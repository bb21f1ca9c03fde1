"""How large the contexts of models are, by their full names, as faces show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.runs.project import Project


class ModelWindows:
    """Remembers what it found, also where nothing is known: faces ask again and again."""

    def __init__(self) -> None:
        self._windows: dict[str, int | None] = {}

    def find(self, model: str, project: Project) -> int | None:
        """Return the window of `provider/model` in tokens; None for a provider that is not known."""
        if model and model not in self._windows:
            from retinue.models.providers import Providers

            provider, _, name = model.partition("/")
            providers = Providers(project.settings.settings, project.environment)
            found = providers.get(provider)
            self._windows[model] = providers.info(found, name).window if found is not None else None
        return self._windows.get(model)


def known_windows(overrides: Mapping[str, Mapping[str, Any]] | None = None) -> Callable[[str], int | None]:
    """Return a function from a model to its window: None for one that neither the table of known models nor
    `overrides`, the setting `models`, has. A share of a guess would be a guess."""
    return lru_cache(maxsize=None)(lambda model: _window(model, overrides or {}))


def _window(model: str, overrides: Mapping[str, Mapping[str, Any]]) -> int | None:
    from retinue.models.known import known_model

    provider, _, name = model.partition("/")
    said = (overrides.get(model) or overrides.get(name) or {}).get("window")
    if isinstance(said, int) and said > 0:
        return said
    info = known_model(provider, name)
    if not name or info is None:
        return None
    return info.window
