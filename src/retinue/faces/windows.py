"""How large the contexts of models are, by their full names, as faces show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
