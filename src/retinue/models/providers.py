"""The model servers that can be used from here: built in, well known, or described in settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from retinue.models.key_store import StoredKey, stored_keys
from retinue.models.known import (
    FREE,
    UNKNOWN_WINDOW_ELSEWHERE,
    describe_model,
    known_elsewhere,
    known_models,
    routed_models,
    wants_responses,
    with_overrides,
)
from retinue.models.presets import BUILT_IN, OTHER_NAMES, PRESETS, Preset
from retinue.models.protocol import ModelInfo
from retinue.models.provider import Provider, ProviderMaker
from retinue.settings.field import DEFAULT
from retinue.settings.table import Settings

_OWN_SERVER = Preset("openai", "", needs_key=False)


class Providers:
    """All providers as `settings` and `environment` have them. Each is made when it is asked for."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self.environment = environment
        self._made: dict[str, Provider | None] = {}
        self._served: dict[str, tuple[str, ...]] = {}
        self.asked = False
        """True once all servers were asked for their models (`inventory.py`)."""
        self.asked_named = False
        """True once the servers that the user set up were asked."""
        self.foreign_servers: dict[str, str] = {}
        """Servers at a usual port of this machine that are not asked, with the user to whom each belongs."""

    def get(self, name: str) -> Provider | None:
        """Return the provider of that id, in any spelling, or None for an unknown one."""
        wanted = name.strip().lower()
        if wanted not in self.described:
            wanted = OTHER_NAMES.get(wanted, wanted)
        if wanted not in self._made:
            self._made[wanted] = self._make(wanted)
        return self._made[wanted]

    @cached_property
    def described(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """The entries of settings by lower-case id, with the id as written."""
        found = {}
        for name, entry in self.settings.providers.items():
            found[name.strip().lower()] = (name, entry)
        return found

    @cached_property
    def stored(self) -> Mapping[str, StoredKey]:
        """The keys that `retinue models add` has stored."""
        return stored_keys(self.environment)

    def configured(self) -> Iterator[Provider]:
        """Yield the usable ones that the user set up: built-in with a key, those of settings, well-known ones
        with a key or an address in the environment, and servers on this machine that were found."""
        for name in dict.fromkeys((*BUILT_IN, *self.described, *PRESETS)):
            provider = self.get(name)
            if provider is not None and provider.problem is None and self._is_set_up(name, provider):
                yield provider

    def unnamed_servers(self) -> list[Provider]:
        """Return the well-known servers of this machine, at their usual addresses, that nobody has named."""
        found = []
        for name, preset in PRESETS.items():
            provider = self.get(name)
            if provider is not None and not preset.needs_key and not self._is_set_up(name, provider):
                found.append(provider)
        return found

    def describe_foreign_servers(self) -> list[str]:
        """Return a sentence for each server of another user at a usual port of this machine."""
        sentences = []
        for name, owner in self.foreign_servers.items():
            sentences.append(
                f"A server answers at the usual port of {name}, but it belongs to another user ({owner}), so it is not "
                f"used. If you trust it: retinue models add {name}"
            )
        return sentences

    def learn(self, provider: Provider, models: tuple[str, ...]) -> None:
        """Remember what a server says that it has."""
        self._served[provider.id] = models
        self.__dict__.pop("models", None)

    def served(self, provider: Provider) -> tuple[str, ...] | None:
        """Return what the server said that it has; None if it was not asked or gave no answer."""
        return self._served.get(provider.id)

    @cached_property
    def models(self) -> tuple[ModelInfo, ...]:
        """Every model that can be named loosely: what the configured providers are known to have."""
        found: list[ModelInfo] = []
        for provider in self.configured():
            found += self.models_of(provider)
        return tuple(found)

    def models_of(self, provider: Provider) -> tuple[ModelInfo, ...]:
        """Return what `provider` offers: its entry's list, else what it said, else the table; and what settings add."""
        known = list(provider.listed)
        if not known:
            known = [self.info(provider, model) for model in self._names_of(provider)]
        have = {info.id for info in known}
        prefix = f"{provider.id}/".lower()
        for name in self.settings.models:
            model = name[len(prefix) :]
            if name.lower().startswith(prefix) and model and model not in have:
                known.append(self.info(provider, model))
        return tuple(known)

    def _names_of(self, provider: Provider) -> Iterator[str]:
        served = self.served(provider)
        if served:
            yield from served
            return
        if provider.id == "openrouter":
            yield from routed_models()
            return
        own = provider.id == "openai" and not provider.custom
        for info in known_models(provider.id):
            # OpenAI's newer models use tools only through the Responses API: offered once, there.
            if not own or not wants_responses(info.id):
                yield info.id

    def _is_set_up(self, name: str, provider: Provider) -> bool:
        if name in self.described or name in BUILT_IN or name in self._served:
            return True
        return bool(provider.key_source or any(self.environment.get(url) for url in PRESETS[name].urls))

    def info(self, provider: Provider, model: str) -> ModelInfo:
        """Return what is known of a model of this provider, settings included. Never fails."""
        for listed in provider.listed:
            if listed.id.lower() == model.lower():
                return listed
        info = describe_model(provider.id, model)
        if provider.local and info.prices is None:
            info = self._describe_local(provider, model, info)
        if info.images and _takes_documents(provider, model):
            info = replace(info, documents=True)
        return self.overridden(info)

    def _describe_local(self, provider: Provider, model: str, info: ModelInfo) -> ModelInfo:
        """Return what a model of a server on this machine costs and holds. A server that computes its answers itself
        is free; any other one may be a gateway, so the model has its maker's price or none that is known."""
        if not provider.computes_answers:
            maker = known_elsewhere(model)
            return info if maker is None else replace(info, prices=maker.prices)
        if model.endswith("cloud"):
            return info
        # The maker's window says nothing about this machine's: the server is asked at the launch.
        return replace(info, prices=FREE, window=min(info.window, UNKNOWN_WINDOW_ELSEWHERE))

    def has_window(self, provider: Provider, model: str) -> bool:
        """Return whether the user's settings say how large the window of a model is."""
        names = (model, f"{provider.id}/{model}")
        if any("window" in self.settings.models.get(name, {}) for name in names):
            return True
        described = self.described.get(provider.id, ("", {}))[1].get("models", ())
        return any(not isinstance(item, str) and item.get("id") == model and "window" in item for item in described)

    def overridden(self, info: ModelInfo) -> ModelInfo:
        """Return what the `models` setting says of a model, over what is known."""
        overrides = self.settings.models
        for name in (info.id, info.full_name):
            info = with_overrides(info, overrides.get(name))
        return info

    def _make(self, name: str) -> Provider | None:
        written, entry = self.described.get(name, (name, {}))
        preset = BUILT_IN.get(name) or PRESETS.get(name) or (_OWN_SERVER if name in self.described else None)
        if preset is None:
            return None
        origin = self.settings.origin(f"providers.{written}") if name in self.described else DEFAULT
        # OpenAI has two ids for one key.
        stored = self.stored.get(name) or self.stored.get(name.removesuffix("-responses"))
        made = ProviderMaker(name, preset, entry, origin, self.environment, stored).make()
        listed = []
        for item in entry.get("models", ()):
            info = self._read_listed(made, item)
            if info.id:
                listed.append(info)
        return made._replace(listed=tuple(listed))

    def _read_listed(self, made: Provider, item: str | Mapping[str, Any]) -> ModelInfo:
        model = item if isinstance(item, str) else item.get("id", "")
        info = self.info(made, model)
        if isinstance(item, str):
            return info
        return with_overrides(info, item)


_READERS = frozenset({"anthropic", "gemini", "openai", "openai-responses", "azure"})
"""Providers whose own format has a part for PDFs, for every model that sees images."""
_READING_ROUTES = ("anthropic/", "openai/", "google/")
"""Models to which OpenRouter hands a PDF as it is; for others it would bill for recognising text."""


def _takes_documents(provider: Provider, model: str) -> bool:
    """Azure takes PDFs in the Responses format only."""
    if provider.api_for(model) == "openai":
        if provider.id == "openrouter" and not model.startswith(_READING_ROUTES):
            return False
        # Another server under OpenAI's name.
        unknown = provider.id == "openai" and provider.custom
        return not unknown and bool(provider.quirks.get("documents"))
    return provider.id in _READERS
