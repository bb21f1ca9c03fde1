"""Language models: list them, resolve a name to one, and set up, test and remove providers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from retinue.app.text import optional
from retinue.core.spec import THINKING_LEVELS as THINKING_LEVELS
from retinue.errors import RetinueError, UsageError
from retinue.guard.trust import settings_in_effect
from retinue.http.address import display_url
from retinue.http.transport import Transport
from retinue.models import inventory, setup
from retinue.models.inventory import ModelInventory, with_local_window, with_real_window
from retinue.models.keys import environment, remove_key
from retinue.models.keys import without_keys as without_keys
from retinue.models.known import table_date, table_source
from retinue.models.presets import OTHER_NAMES, PRESETS
from retinue.models.protocol import ModelInfo as ModelInfo
from retinue.models.protocol import Prices
from retinue.models.providers import Providers
from retinue.models.select import ModelSelection as ModelSelection
from retinue.models.select import select_model
from retinue.models.setup import FIRST_STEPS as FIRST_STEPS
from retinue.models.setup import KEY_PAGES as KEY_PAGES
from retinue.models.setup import TestedModel as TestedModel
from retinue.models.setup import provider_name as provider_name
from retinue.settings.load import Loaded
from retinue.settings.table import Settings

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog
    from retinue.http.transport import Transport

MAX_MEASURED = 16
"""A gateway may list hundreds of models, and each one is asked for its window."""


class PriceView(Struct, frozen=True, kw_only=True, rename="camel"):
    """US dollars per million tokens. `above` are the prices of requests with more input than a limit."""

    input: float
    output: float
    cache_read: float | None
    cache_write: float | None
    above: PriceAbove | UnsetType = UNSET


class PriceAbove(PriceView, frozen=True, kw_only=True):
    """The prices of a request with more input than `tokens`."""

    tokens: int


class ModelFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """A language model. `model` is `provider/id`, its name in all commands and files."""

    model: str
    provider: str
    id: str
    name: str
    window: int
    max_output: int
    thinking: bool
    images: bool
    documents: bool
    prices: PriceView | None


class ModelView(ModelFacts, frozen=True, kw_only=True):
    """An available language model. `active` marks the default."""

    active: bool


class SelectedModel(ModelFacts, frozen=True, kw_only=True, rename="camel"):
    """The model that a name resolves to, and the reason."""

    source: str
    why: str
    api: str
    base_url: str | None
    key: str | None
    origin: str
    thinking_level: str | None
    notes: Sequence[str]
    warnings: Sequence[str]


class ModelProblem(Struct, frozen=True):
    """The reason why no model would be used."""

    code: str
    message: str


class OpenAIModel(Struct, frozen=True):
    """An agent as OpenAI's API lists a model. `id` is its name."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


class ModelList(Struct, frozen=True, kw_only=True):
    """The available language models and the default one. `date` and `source` describe the windows and prices."""

    models: list[ModelView]
    active: SelectedModel | None
    error: ModelProblem | None
    date: str
    source: str
    warnings: Sequence[str]


class OpenAIModelList(ModelList, frozen=True, kw_only=True):
    """Two lists in one document. `models` are the available language models. `object` and `data` are those of OpenAI's
    `/v1/models`, where a model is an agent for `/v1/chat/completions`."""

    data: list[OpenAIModel]
    object: Literal["list"] = "list"


class NewProvider(Struct, frozen=True, kw_only=True, rename="camel"):
    """A provider that was set up. `kept_in` is where its key is stored. `active` is the default model now."""

    provider: str
    base_url: str | None
    model: str
    kept_in: str | None
    test: TestedModel | None
    active: str | None


class RemovedProvider(Struct, frozen=True, kw_only=True):
    """The parts of a provider that were removed. `left` is the remaining source of its key, `default` the default that
    was removed."""

    provider: str
    key: bool
    settings: bool
    left: str | None
    default: str | None
    active: str | None


class DefaultModel(Struct, frozen=True):
    """The default model and the file that sets it."""

    model: str
    file: str
    active: str | None


class ProviderChoice(Struct, frozen=True):
    """A provider that can be set up."""

    name: str
    about: str


# In words


def format_window(tokens: int) -> str:
    """Return a number of tokens with three digits: `8.2k`, `200k`, `1M` or `1.05M`."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_500:
        return f"{tokens / 1_000:.3g}k"
    return f"{tokens / 1_000_000:.3g}M"


def model_name(model: ModelFacts) -> str:
    """Return `provider/id (name)`."""
    if model.name == model.id:
        return model.model
    return model.model + optional(" ({})", model.name)


def model_line(model: ModelFacts) -> str:
    """Return `provider/id (name) · ctx 200k · reasoning · $3/$15`."""
    parts = [model_name(model), f"ctx {format_window(model.window)}"]
    if model.thinking:
        parts.append("reasoning")
    if model.prices is not None and is_free(model.prices):
        parts.append("free")
    elif model.prices is not None:
        parts.append(f"${model.prices.input:g}/${model.prices.output:g}")
    return " · ".join(parts)


def is_free(prices: PriceView) -> bool:
    return prices.input == 0 and prices.output == 0


# Questions


def view_model(info: ModelInfo) -> ModelFacts:
    """Return a model as front ends show it."""
    return ModelFacts(
        model=info.full_name,
        provider=info.provider,
        id=info.id,
        name=info.name or info.id,
        window=info.window,
        max_output=min(info.max_output, info.window),
        thinking=info.thinking,
        images=info.images,
        documents=info.documents,
        prices=None if info.prices is None else _prices(info.prices),
    )


def _prices(prices: Prices) -> PriceView:
    above: PriceAbove | UnsetType = UNSET
    if prices.above is not None:
        tokens, dearer = prices.above
        above = PriceAbove(tokens=tokens, **asdict(_prices(dearer)))
    return PriceView(
        input=prices.input,
        output=prices.output,
        cache_read=prices.cache_read,
        cache_write=prices.cache_write,
        above=above,
    )


def _selected(selection: ModelSelection, warnings: Sequence[str] = ()) -> SelectedModel:
    provider = selection.provider
    return SelectedModel(
        **asdict(view_model(selection.info)),
        source=selection.source,
        why=selection.why,
        api=provider.api,
        base_url=display_url(provider.base_url) or None,
        key=provider.key_source or None,
        origin=str(provider.origin),
        thinking_level=selection.thinking,
        notes=selection.notes,
        warnings=[*selection.warnings, *warnings],
    )


def _in_effect(cwd: Path) -> Loaded:
    return settings_in_effect(cwd, environment())


async def list_models(settings: Settings, provider: str | None = None, *, measure: bool = False) -> ModelList:
    """Return the models, or those of one provider. `measure` asks the user's own servers for the windows of their first
    models."""
    available = await inventory.list_models(settings, environment())
    if measure:
        available = await _measured_inventory(available)
    chosen = available.active.info.full_name if available.active is not None else None
    models = []
    provider_id = None if provider is None else OTHER_NAMES.get(provider.strip().lower(), provider.strip().lower())
    for info in available.models:
        if provider_id is None or info.provider.lower() == provider_id:
            models.append(ModelView(**asdict(view_model(info)), active=info.full_name == chosen))
    notes: dict[str, None] = {}
    for configured in available.providers.configured():
        notes |= dict.fromkeys(configured.notes)
    problem = available.problem
    return ModelList(
        models=models,
        active=None if available.active is None else _selected(available.active),
        error=None if problem is None else ModelProblem(problem.code, str(problem)),
        date=table_date(),
        source=table_source(),
        warnings=list(notes),
    )


async def _measured_inventory(models: ModelInventory) -> ModelInventory:
    servers = {provider.id for provider in models.providers.configured() if provider.runs_models}
    own = [info for info in models.models if info.provider in servers][:MAX_MEASURED]
    if not own:
        return models

    transport = Transport()
    try:
        asked = await asyncio.gather(*(_measured(info, models.providers, transport) for info in own))
    finally:
        await transport.close()
    measured = {info.full_name: info for info in asked}
    return models._replace(models=tuple(measured.get(info.full_name, info) for info in models.models))


async def _measured(info: ModelInfo, providers: Providers, transport: Transport) -> ModelInfo:
    provider = providers.get(info.provider)
    if provider is None:
        return info
    described = providers.has_window(provider, info.id)
    measured, _ = await with_local_window(provider, info, transport, described, load=False)
    return measured if measured.window != info.window else info


async def list_models_in(cwd: Path, provider: str | None = None) -> ModelList:
    """Return the models visible from `cwd`, with the windows of the user's own servers and warnings about settings."""
    loaded = _in_effect(cwd)
    models = await list_models(loaded.settings, provider, measure=True)
    return replace(models, warnings=[*loaded.warnings, *models.warnings])


async def list_for_openai(settings: Settings, catalog: Catalog) -> OpenAIModelList:
    """Return the models, and the agents in the form of OpenAI's list of models."""
    models = await list_models(settings)
    now = int(time.time())
    agents = [OpenAIModel("main", now, "retinue")]
    agents += [OpenAIModel(entry.name, now, entry.source) for entry in catalog.agents]
    return OpenAIModelList(**asdict(models), data=agents)


def find_for_openai(catalog: Catalog, name: str) -> OpenAIModel:
    """Return an agent in the form of OpenAI's models. Raise UnknownAgentError."""
    now = int(time.time())
    if name == "main":
        return OpenAIModel("main", now, "retinue")
    entry = catalog.find(name)
    return OpenAIModel(entry.name, now, entry.source)


def explain_none(cwd: Path, provider: str | None) -> str:
    """Return the reason why no models are listed."""
    if provider is None:
        return "No model is available."
    configured = Providers(_in_effect(cwd).settings, environment()).get(provider)
    if configured is None:
        return f"There is no provider '{provider}'; `providers` in settings can describe one."
    if configured.problem is not None:
        return f"No models: {configured.problem}."
    where = f"start the server at {configured.base_url}"
    return f"'{configured.id}' lists no models here; name one as {configured.id}/ID, or {where}."


def has_own_prices(cwd: Path) -> bool:
    """Return whether the setting `models` overrides the table of known models."""
    return bool(_in_effect(cwd).settings.models)


async def resolve_model(cwd: Path, query: str | None = None, file_model: str | None = None) -> SelectedModel:
    """Resolve a name to a model, or without `query` return the default, with the window that its server reports. A
    model is not loaded for this. Raise UsageError if no model matches."""
    loaded, variables = _in_effect(cwd), environment()
    selection = await select_model(query, file_model=file_model, settings=loaded.settings, environment=variables)
    if selection.provider.runs_models:
        transport = Transport()
        try:
            providers = Providers(loaded.settings, variables)
            selection = await with_real_window(selection, providers, transport, load=False)
        finally:
            await transport.close()
    return _selected(selection, loaded.warnings)


async def find_active(cwd: Path) -> SelectedModel | None:
    """Return the default model; None if there is none."""
    try:
        return _selected(await select_model(settings=_in_effect(cwd).settings, environment=environment()))
    except RetinueError:
        return None


async def _active_name(cwd: Path) -> str | None:
    active = await find_active(cwd)
    return None if active is None else active.model


# Changes


async def list_choices(cwd: Path) -> list[ProviderChoice]:
    """Return the providers that can be set up: local servers first, then those that issue keys."""
    providers = Providers(_in_effect(cwd).settings, environment())
    await inventory.ask_servers(providers)
    choices = []
    for provider in providers.configured():
        served = providers.served(provider)
        if served and provider.id in PRESETS and not PRESETS[provider.id].needs_key:
            about = f"runs at {display_url(provider.base_url)}, {len(served)} models"
            choices.append(ProviderChoice(provider.id, about))
    return choices + [ProviderChoice(name, f"a key from {page}") for name, page in KEY_PAGES.items()]


def needs_key(name: str) -> bool:
    """Return whether a known provider requires a key."""
    preset = setup.preset_of(provider_name(name))
    return preset is not None and preset.needs_key


def key_source(name: str, cwd: Path) -> str:
    """Return the source of a provider's key; empty if it has none."""
    provider = Providers(_in_effect(cwd).settings, environment()).get(provider_name(name))
    return provider.key_source if provider is not None else ""


async def add_provider(
    cwd: Path, name: str, *, key: str = "", url: str = "", model: str = "", check: bool = True
) -> NewProvider:
    """Set up a provider: test it with one small request, and store its key or address. If the test fails, nothing is
    stored."""
    added = await setup.add_provider(
        name,
        key=key,
        url=url,
        model=model,
        check=check,
        settings=_in_effect(cwd).settings,
        environment=environment(),
    )
    return NewProvider(
        provider=added.provider.id,
        base_url=display_url(added.provider.base_url),
        model=added.model,
        kept_in=added.key_place or None,
        test=added.test,
        active=await _active_name(cwd),
    )


async def remove_provider(cwd: Path, name: str) -> RemovedProvider:
    """Remove the key and the address that `add_provider` stored, and the default if it is one of its models. Raise
    UsageError if nothing is stored."""
    variables = environment()
    name = provider_name(name)
    had_key = remove_key(name, variables)
    had_entry = name in setup.own_providers(variables) and setup.forget_address(name, variables)
    remaining_source = key_source(name, cwd)
    if not had_key and not had_entry:
        why = f" Its key comes from {remaining_source}." if remaining_source else ""
        raise UsageError(f"Nothing is stored for '{name}'.{why}", remedy="See what there is: retinue models list")
    default = None if remaining_source else setup.forget_default(name, variables)
    return RemovedProvider(
        provider=name,
        key=had_key,
        settings=had_entry,
        left=remaining_source or None,
        default=default,
        active=await _active_name(cwd),
    )


async def check_model(cwd: Path, name: str | None = None) -> tuple[TestedModel, Sequence[str]]:
    """Ask a model for one word. Return its answer and the warnings of the selection."""
    transport = Transport()
    try:
        selection = await select_model(
            name, settings=_in_effect(cwd).settings, environment=environment(), transport=transport
        )
        return await setup.try_model(selection, transport), selection.warnings
    finally:
        await transport.close()


def make_default(model: str) -> None:
    """Store `provider/id` as the user's default model."""
    setup.make_default(model, environment())


async def choose_default(cwd: Path, name: str) -> tuple[DefaultModel, Sequence[str]]:
    """Make the model that a name resolves to the default. Return it, and the warnings of the selection."""
    chosen = await select_model(name, settings=_in_effect(cwd).settings, environment=environment())
    path = setup.make_default(chosen.info.full_name, environment())
    return DefaultModel(chosen.info.full_name, str(path), await _active_name(cwd)), chosen.warnings
