"""Which models may be used at all, when the user limits them (`scopeModels`).

The list is `enabledModels` of the settings, of which pi's files are a layer. Only exact `provider/id` entries that
are available count. A list in which nothing counts limits nothing, so that a typo cannot lock
everything out.
"""

from __future__ import annotations

from collections.abc import Iterable

from retinue.core.lean import dataclass
from retinue.errors import UsageError
from retinue.models.protocol import ModelInfo
from retinue.settings.table import Settings


class OutOfScopeError(UsageError):
    code = "MODEL_NOT_IN_SCOPE"


@dataclass(frozen=True, slots=True)
class Scope:
    """The allowed models by full name; empty allows all."""

    allowed: tuple[str, ...] = ()

    def permits(self, info: ModelInfo) -> bool:
        return not self.allowed or info.full_name.lower() in {name.lower() for name in self.allowed}

    def refusal(self, query: str) -> OutOfScopeError:
        """For a caller that chose a model outside the list."""
        listed = "\n".join(f"  {name}" for name in self.allowed)
        return OutOfScopeError(f'Model not in scope: "{query}".', remedy=f"Allowed models:\n{listed}")

    def warning(self, info: ModelInfo, source: str) -> str:
        """For a model that a file or a parent brought: it runs, and this is said."""
        return f"{info.full_name} ({source}) is not among the enabled models: {', '.join(self.allowed)}"


def load_scope(settings: Settings, available: Iterable[ModelInfo]) -> Scope:
    """The scope that the settings ask for."""
    if not settings.scope_models:
        return Scope()
    wanted = {entry.lower() for entry in settings.enabled_models or ()}
    return Scope(tuple(sorted({info.full_name for info in available if info.full_name.lower() in wanted})))
