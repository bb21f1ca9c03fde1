"""Models of an open project: choosing one, setting up the first one, and the models that agent files mean.

Also the context windows of models, by full name, as front ends show them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from retinue.app.models import KEY_PAGES, ModelInfo, ModelSelection, model_line, view_model
from retinue.models import inventory, setup
from retinue.models.inventory import ModelInventory
from retinue.models.known import known_model
from retinue.models.presets import PRESETS
from retinue.models.providers import Providers
from retinue.models.resolve import OFFLINE, Resolver
from retinue.models.select import select_model
from retinue.models.setup import go_without_model as go_without_model
from retinue.models.setup import is_without_model as is_without_model

if TYPE_CHECKING:
    from retinue.agents.catalog import LoadedAgent
    from retinue.http.transport import Transport
    from retinue.runs.project import Project


SHARED_FAMILIES = ("haiku", "sonnet", "opus")
"""Model names that agent files share across machines. They are offered if they match a model."""


def providers_of(project: Project) -> Providers:
    """Return the providers of a project and the known data of their models, without contacting them."""
    return Providers(project.settings.settings, project.environment)


async def find_models(project: Project) -> ModelInventory:
    """Return the models of a project, including those that servers report."""
    return await inventory.list_models(project.settings.settings, project.environment, project.transport)


async def choose_model(project: Project, name: str | None, *, always: bool = False) -> ModelSelection:
    """Return the model that a name means, or the default model. `always` stores it as the user's default. Raise
    RetinueError if there is none."""
    settings = project.settings.settings
    chosen = await select_model(name, settings=settings, environment=project.environment, transport=project.transport)
    if always:
        setup.make_default(chosen.info.full_name, project.environment)
    return chosen


async def try_provider(project: Project, name: str, *, key: str, url: str) -> setup.AddedProvider:
    """Do the same as `add_provider` for an open project."""
    return await setup.add_provider(
        name,
        key=key,
        url=url,
        settings=project.settings.settings,
        environment=project.environment,
        transport=project.transport,
    )


class ModelRow(NamedTuple):
    """One way to get a model. `value` is `use:FULL NAME`, `key:PROVIDER`, `address` or `planner`."""

    value: str
    words: str


async def ways_to_a_model(project: Project) -> list[ModelRow]:
    """Return every way to get a model: servers of this machine, keys, other servers, or the planner."""
    providers = providers_of(project)
    await inventory.ask_servers(providers, project.transport)
    rows = []
    for provider in providers.configured():
        served = providers.served(provider) or ()
        if served and provider.id in PRESETS and not PRESETS[provider.id].needs_key:
            for model in served[:3]:
                rows.append(ModelRow(f"use:{provider.id}/{model}", f"{provider.id} on this machine · {model}"))
    for name, page in KEY_PAGES.items():
        rows.append(ModelRow(f"key:{name}", f"{name:<10} · a key from {page}"))
    rows.append(ModelRow("address", "Another server that speaks OpenAI's API, by its address"))
    rows.append(ModelRow("planner", "Continue without a language model: the planner only searches files"))
    return rows


def model_names(models: Sequence[ModelInfo]) -> list[tuple[str, str]]:
    """Return (full name, description) rows for a short list, without the planner."""
    rows = []
    for info in models:
        if info.full_name != OFFLINE.full_name:
            rows.append((info.full_name, model_line(view_model(info))))
    return rows


def model_families(project: ModelInventory) -> list[tuple[str, str]]:
    """Return the shared model names that match a model here, each with that model."""
    resolver = Resolver(project.providers)
    rows = []
    for family in SHARED_FAMILIES:
        selected = resolver.find(family)
        if selected is not None:
            rows.append((family, f"{family} · now {selected.info.full_name}"))
    return rows


class ModelLabels:
    """Returns a label for an agent's model: `inherit`, the model that its file means here, or that there is none."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._labels: dict[str, str] = {}

    async def ask_servers(self, transport: Transport | None) -> None:
        """Ask the named servers for their models."""
        await inventory.ask_named_servers(self._providers, transport)
        self._labels.clear()

    def __call__(self, entry: LoadedAgent) -> str:
        policy = entry.spec.model
        name = policy.name
        if name is None or name == "inherit":
            return "inherit"
        if name not in self._labels:
            resolver = Resolver(self._providers)
            self._labels[name] = f"{name} (unavailable)"
            for query in (name, *policy.fallbacks):
                selected = resolver.find(query)
                if selected:
                    self._labels[name] = selected.info.id
                    break
        return self._labels[name]


class ModelWindows:
    """Remembers what it found, also where nothing is known: front ends ask again and again."""

    def __init__(self) -> None:
        self._windows: dict[str, int | None] = {}

    def find(self, model: str, project: Project) -> int | None:
        """Return the window of `provider/model` in tokens; None for a provider that is not known."""
        if model and model not in self._windows:
            provider, _, name = model.partition("/")
            providers = Providers(project.settings.settings, project.environment)
            configured = providers.get(provider)
            self._windows[model] = providers.info(configured, name).window if configured is not None else None
        return self._windows.get(model)


def known_windows(overrides: Mapping[str, Mapping[str, Any]] | None = None) -> Callable[[str], int | None]:
    """Return a function from a model to its window: None for one that neither the table of known models nor
    `overrides`, the setting `models`, has. A share of a guess would be a guess."""
    return lru_cache(maxsize=None)(lambda model: _window(model, overrides or {}))


def _window(model: str, overrides: Mapping[str, Mapping[str, Any]]) -> int | None:
    provider, _, name = model.partition("/")
    override = (overrides.get(model) or overrides.get(name) or {}).get("window")
    if isinstance(override, int) and override > 0:
        return override
    info = known_model(provider, name)
    if not name or info is None:
        return None
    return info.window
