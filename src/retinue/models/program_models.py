"""Models that a program brings along as objects: a `ScriptedModel` in a test, or one that it wrote itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from msgspec.structs import replace

from retinue.errors import UsageError
from retinue.models.protocol import Model, ModelInfo, ModelRequest, Part


class ProgramModel:
    """A model of the program under a name that is its own. Runs share it, so ending one does not close it."""

    def __init__(self, model: Model, info: ModelInfo) -> None:
        self.inner = model
        self.info = info

    def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        return self.inner.stream(request)

    async def close(self) -> None:
        """Do nothing: the program closes what it has made."""


class ProgramModels:
    """Those of one project, by full name. `default`, where there is one, is used by every run that a person has not
    given another model: also where an agent's file names one, so that a test reaches no provider."""

    def __init__(self) -> None:
        self._models: dict[str, ProgramModel] = {}
        self.default: str | None = None

    def add(self, model: Any) -> str:
        """Return the name under which `model` is known from now on. Raise UsageError for what is no model."""
        info = getattr(model, "info", None)
        if not isinstance(info, ModelInfo) or not callable(getattr(model, "stream", None)):
            raise UsageError(
                f"{type(model).__name__} is no model.",
                remedy="Give the name of a model, or an object with `info` (a ModelInfo) and `stream`.",
            )
        for name, known in self._models.items():
            if known.inner is model:
                return name
        number, id = 2, info.id
        while f"{info.provider}/{id}" in self._models:
            id = f"{info.id}-{number}"
            number += 1
        made = ProgramModel(model, replace(info, id=id))
        self._models[made.info.full_name] = made
        return made.info.full_name

    def get(self, name: str) -> ProgramModel | None:
        return self._models.get(name.strip())


NO_MODELS = ProgramModels()
