"""The model servers that can be used from here: built-in, well-known, or described in settings.

A provider has an address, a wire format and a key, from its preset, its entry in settings and the environment. A key is
only read from the places that the user chose, and only sent to the address that the user chose. Until the user has
consented to a project's file, a provider of that file may not name a variable or receive a key at an address of its
own, not even on this machine. Otherwise a cloned repository could collect keys. It then works without a key, and a note
says so. Nothing in this module prints a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from retinue.http.address import display_url, host_of, is_loopback, normal_url, ollama_url, origin_of
from retinue.models.keys import VARIABLE_REFERENCE, KeyHelper, StoredKey, named_variables, stored_keys
from retinue.models.known import (
    FREE,
    UNKNOWN_LOCAL_WINDOW,
    describe_model,
    known_elsewhere,
    known_models,
    routed_models,
    takes_responses,
    wants_responses,
    with_overrides,
)
from retinue.models.presets import BUILT_IN, OTHER_NAMES, PRESETS, Api, Preset
from retinue.models.protocol import ModelInfo
from retinue.settings.field import DEFAULT, Origin
from retinue.settings.table import Settings

if TYPE_CHECKING:
    from retinue.models.keys import KeyHelper, StoredKey


_NONE: Mapping[str, Any] = MappingProxyType({})


class Provider(NamedTuple):
    """A model server. `problem` is the reason why it cannot be used, or None. `custom`: its address is not that of the
    maker."""

    id: str
    api: Api
    base_url: str
    api_key: str = ""
    headers: Mapping[str, str] = _NONE
    query: Mapping[str, str] = _NONE
    quirks: Mapping[str, Any] = _NONE
    listed: tuple[ModelInfo, ...] = ()
    key_source: str = ""
    helper: KeyHelper | None = None
    """The source of a key that is not known yet; `api_key` is empty then."""
    key_variable: str | None = None
    """The variable to set or correct when the key is refused."""
    origin: Origin = DEFAULT
    custom: bool = False
    api_by_model: bool = False
    """The server has both wire formats of OpenAI, and the user chose none: the model decides."""
    problem: str | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # Never the key or a header.
        return f"Provider({self.id!r}, {self.api!r}, {display_url(self.base_url)!r})"

    def api_for(self, model: str) -> Api:
        """Return the wire format of requests to a model."""
        if self.api_by_model and takes_responses(model):
            return "openai-responses"
        return self.api

    def url_for(self, model: str) -> str:
        """Return the base URL for a model. Azure's dated versions have a path for each deployment, except in the
        Responses API."""
        url = self.base_url
        if self.api_for(model) == "openai-responses":
            url = url.replace("/deployments/{model}", "")
        return url.replace("{model}", model)

    @property
    def local(self) -> bool:
        """Whether its address is on this machine."""
        return self.api != "embedded" and is_loopback(self.base_url)

    @property
    def computes_answers(self) -> bool:
        """Whether it is a program that runs models on this machine, so that its tokens are free."""
        return self.local and self.id in PRESETS and not PRESETS[self.id].needs_key

    @property
    def runs_models(self) -> bool:
        """Whether it is a server on this machine that runs models itself, and not a proxy of a maker."""
        known_maker = self.id in BUILT_IN or (self.id in PRESETS and PRESETS[self.id].needs_key)
        return self.api == "openai" and not known_maker and self.local


class ProviderMaker:
    """Makes a provider from its preset, its entry in settings and the environment."""

    def __init__(
        self,
        name: str,
        preset: Preset,
        entry: Mapping[str, Any],
        origin: Origin,
        environment: Mapping[str, str],
        stored: StoredKey | None = None,
    ) -> None:
        self.name, self.preset, self.entry, self.origin = name, preset, entry, origin
        self.api: Api = entry.get("api", preset.api)
        self.notes: list[str] = []
        self._ignored_helper = ""
        self.full_environment, self.stored = environment, stored
        self.base_url, self.trusted = self._address()
        self.environment: Mapping[str, str] = environment if self.trusted else {}
        """The variables whose values may be sent to the address."""

    def make(self) -> Provider:
        """Return the provider, without the models that its entry lists."""
        helper = self._helper()
        key, source = self._key() if helper is None else ("", helper.name)
        if not source and self._may_have_stored():
            key, source, helper = self._stored_key()
        custom = bool(self.base_url) and host_of(self.base_url) != host_of(self.preset.url)
        headers = self._headers()
        query = {**self._api_version(), **self.entry.get("query", {})}
        quirks = {**self.preset.quirks, **self.entry.get("quirks", {})}
        if source == "ANTHROPIC_AUTH_TOKEN":
            quirks = {"auth": "bearer", **quirks}
        return Provider(
            id=self.name,
            api=self.api,
            base_url=self.base_url,
            api_key=key,
            headers=headers,
            query=query,
            quirks=quirks,
            key_source=source,
            helper=helper,
            key_variable=None if helper is not None else self._key_variable(source),
            origin=self.origin,
            custom=custom,
            api_by_model=self._api_by_model(custom),
            problem=self._problem(bool(source), custom),
            notes=tuple(self.notes),
        )

    def _address(self) -> tuple[str, bool]:
        """Return the address, and whether secrets of the environment may be sent to it."""
        for variable in self.preset.urls:
            url = self.full_environment.get(variable, "").strip()
            if url:
                if variable == "OLLAMA_HOST":
                    url = ollama_url(url)
                return self._azure(normal_url(self.api, url)), True
        written = self.entry.get("baseUrl", "")
        if not written:
            return normal_url(self.api, self.preset.url), True
        url = normal_url(self.api, written)
        own = origin_of(url)
        safe = self.origin.believed or (own is not None and own == origin_of(self.preset.url))
        return self._azure(url), safe

    def _azure(self, url: str) -> str:
        """Return the address with the path of Azure's OpenAI interface: Azure's own address names a resource."""
        if self.name != "azure" or "/openai" in url:
            return url
        path = "/openai/v1"
        if self._api_version():
            # A dated version has a path for each deployment.
            path = "/openai/deployments/{model}"
        return url.removesuffix("/v1") + path

    def _api_by_model(self, custom: bool) -> bool:
        """Return whether the model decides the format: at OpenAI and at Azure, whose dated versions have the Responses
        API since 2025-03."""
        if "api" in self.entry:
            return False
        if self.name == "azure":
            version = self._api_version().get("api-version", "")
            return not version or version >= "2025-03"
        return self.name == "openai" and not custom

    def _api_version(self) -> dict[str, str]:
        version = self.entry.get("apiVersion")
        if not version and self.name == "azure":
            version = self.full_environment.get("OPENAI_API_VERSION", "")
        if version:
            return {"api-version": version}
        return {}

    def _helper(self) -> KeyHelper | None:
        """Return the key helper of the entry, if there is one and the user wrote it."""
        argv, keyring = tuple(self.entry.get("apiKeyHelper", ())), self.entry.get("apiKeyKeyring", "")
        if not argv and not keyring:
            return None
        if not self.origin.personal:
            which = "apiKeyHelper" if argv else "apiKeyKeyring"
            ignored = (
                f"'{which}' of '{self.name}' is not used: a project's file names it; put it into your own settings if "
                "you trust it"
            )
            self.notes.append(ignored)
            self._ignored_helper = f". {ignored}"
            return None
        if argv:
            return KeyHelper(argv=argv)
        return KeyHelper(keyring=keyring)

    def _key(self) -> tuple[str, str]:
        """Return the key and its source. A text without `$` is the key itself."""
        written = self.entry.get("apiKey", "")
        match = VARIABLE_REFERENCE.fullmatch(written)
        if written and not match:
            if not self.origin.personal:
                self.notes.append(f"{self.origin.where} holds a key in plain text; use apiKeyEnv and a variable")
            return written, f"the settings of '{self.name}'"
        variable = (match[1] or match[2]) if match else self.entry.get("apiKeyEnv", "")
        if variable and not self.origin.believed:
            self.notes.append(self._withheld(variable))
            variable = ""
        for name in (variable,) if variable else self.preset.keys:
            value = self.environment.get(name, "").strip()
            if value:
                return value, name
            if not self.trusted and self.full_environment.get(name):
                self.notes.append(self._withheld(name))
        return "", ""

    def _may_have_stored(self) -> bool:
        """Return whether there is a stored key for this address."""
        own = origin_of(self.base_url)
        return self.stored is not None and own is not None and own == origin_of(self.stored.origin)

    def _stored_key(self) -> tuple[str, str, KeyHelper | None]:
        assert self.stored is not None
        if self.stored.key:
            return self.stored.key, f"the stored key of '{self.name}'", None
        helper = KeyHelper(keyring=self.stored.keyring)
        return "", helper.name, helper

    def _key_variable(self, source: str) -> str | None:
        if source and self.environment.get(source):
            return source
        if source:
            return None
        written = self._named_variable() or ""
        return written.strip("${}") or next(iter(self.preset.keys), None)

    def _named_variable(self) -> str | None:
        """Return the variable that the entry names, if it is allowed to."""
        named: str | None = self.entry.get("apiKeyEnv") or self.entry.get("apiKey")
        if self.origin.believed:
            return named
        return None

    def _headers(self) -> dict[str, str]:
        headers = {}
        for name, value in self.entry.get("headers", {}).items():
            named = named_variables({"headers": {name: value}})
            missing = [variable for variable in named if not self.environment.get(variable)]
            if named and not self.origin.believed:
                self.notes.append(self._withheld(named[0]))
            elif missing:
                self.notes.append(f"the header '{name}' of '{self.name}' is left out: ${missing[0]} is not set")
            else:
                headers[name] = VARIABLE_REFERENCE.sub(lambda m: self.environment[m[1] or m[2]], value)
        return headers

    def _withheld(self, variable: str) -> str:
        return (
            f"${variable} is not sent to {host_of(self.base_url)}, '{self.name}' of a project's file, without consent: "
            f"it goes without a key. Consent with: retinue trust add {self.origin.where}"
        )

    def _problem(self, has_key: bool, custom: bool) -> str | None:
        if not self.base_url:
            missing = " or ".join((*self.preset.urls, f"providers.{self.name}.baseUrl in settings"))
            return f"'{self.name}' has no address: set {missing}"
        if host_of(self.base_url) is None:
            return f"'{self.name}' has an address that is not an http or https URL"
        named = self._named_variable()
        if has_key or not (named or (self.preset.needs_key and not custom)):
            return None
        variables = [str(named).strip("${}")] if named else list(self.preset.keys)
        return f"'{self.name}' has no key: set {' or '.join(variables)}{self._ignored_helper}"


_CUSTOM_PRESET = Preset("openai", "", needs_key=False)


class Providers:
    """All providers of `settings` and `environment`. Each is made when it is first used."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self.environment = environment
        self._providers: dict[str, Provider | None] = {}
        self._served: dict[str, tuple[str, ...]] = {}
        self.asked = False
        """Whether all servers were asked for their models (`inventory.py`)."""
        self.asked_named = False
        """Whether the servers that the user set up were asked."""
        self.foreign_servers: dict[str, str] = {}
        """Servers of other users at usual ports of this machine, which are not asked, with their owners."""

    def get(self, name: str) -> Provider | None:
        """Return the provider of that id, in any spelling, or None for an unknown one."""
        key = name.strip().lower()
        if key not in self.described:
            key = OTHER_NAMES.get(key, key)
        if key not in self._providers:
            self._providers[key] = self._make(key)
        return self._providers[key]

    @cached_property
    def described(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """The entries of settings by lower-case id, with the id as written."""
        return {name.strip().lower(): (name, entry) for name, entry in self.settings.providers.items()}

    @cached_property
    def stored(self) -> Mapping[str, StoredKey]:
        """The keys that `retinue models add` has stored."""
        return stored_keys(self.environment)

    def configured(self) -> Iterator[Provider]:
        """Yield the usable providers that the user set up: built-in ones with a key, those of settings, well-known ones
        with a key or an address in the environment, and servers on this machine that answered."""
        for name in dict.fromkeys((*BUILT_IN, *self.described, *PRESETS)):
            provider = self.get(name)
            if provider is not None and provider.problem is None and self._is_set_up(name, provider):
                yield provider

    def unnamed_servers(self) -> list[Provider]:
        """Return the well-known servers at their usual addresses on this machine that the user has not set up."""
        local = [(name, self.get(name)) for name, preset in PRESETS.items() if not preset.needs_key]
        return [provider for name, provider in local if provider is not None and not self._is_set_up(name, provider)]

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
        """Remember the models that a server lists."""
        self._served[provider.id] = models
        self.__dict__.pop("models", None)

    def served(self, provider: Provider) -> tuple[str, ...] | None:
        """Return the models that the server listed; None if it was not asked or did not answer."""
        return self._served.get(provider.id)

    @cached_property
    def models(self) -> tuple[ModelInfo, ...]:
        """The models of the configured providers, which can be named without their provider."""
        return tuple(info for provider in self.configured() for info in self.models_of(provider))

    def models_of(self, provider: Provider) -> tuple[ModelInfo, ...]:
        """Return the models of a provider: those of its entry, else those it listed, else those of the table; and those
        that settings add."""
        infos = list(provider.listed)
        if not infos:
            infos = [self.info(provider, model) for model in self._names_of(provider)]
        ids = {info.id for info in infos}
        prefix = f"{provider.id}/".lower()
        for name in self.settings.models:
            model = name[len(prefix) :]
            if name.lower().startswith(prefix) and model and model not in ids:
                infos.append(self.info(provider, model))
        return tuple(infos)

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
            # OpenAI's newer models use tools in the Responses API only, so they are listed there.
            if not own or not wants_responses(info.id):
                yield info.id

    def _is_set_up(self, name: str, provider: Provider) -> bool:
        if name in self.described or name in BUILT_IN or name in self._served:
            return True
        return bool(provider.key_source or any(self.environment.get(url) for url in PRESETS[name].urls))

    def info(self, provider: Provider, model: str) -> ModelInfo:
        """Return the facts about a model of this provider, including those of the settings. Never fails."""
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
        """Return the facts about a model of a server on this machine. A server that runs the model itself is free. Any
        other server may be a gateway, so the model has its maker's price, or no known price."""
        if not provider.computes_answers:
            maker = known_elsewhere(model)
            return info if maker is None else replace(info, prices=maker.prices)
        if model.endswith("cloud"):
            return info
        # The window on this machine may be smaller than the maker's: the server is asked at the launch.
        return replace(info, prices=FREE, window=min(info.window, UNKNOWN_LOCAL_WINDOW))

    def has_window(self, provider: Provider, model: str) -> bool:
        """Return whether the user's settings state the window of a model."""
        names = (model, f"{provider.id}/{model}")
        if any("window" in self.settings.models.get(name, {}) for name in names):
            return True
        described = self.described.get(provider.id, ("", {}))[1].get("models", ())
        return any(not isinstance(item, str) and item.get("id") == model and "window" in item for item in described)

    def overridden(self, info: ModelInfo) -> ModelInfo:
        """Return the facts about a model with the corrections of the setting `models`."""
        overrides = self.settings.models
        for name in (info.id, info.full_name):
            info = with_overrides(info, overrides.get(name))
        return info

    def _make(self, name: str) -> Provider | None:
        written, entry = self.described.get(name, (name, {}))
        preset = BUILT_IN.get(name) or PRESETS.get(name) or (_CUSTOM_PRESET if name in self.described else None)
        if preset is None:
            return None
        origin = self.settings.origin(f"providers.{written}") if name in self.described else DEFAULT
        # OpenAI has two ids for one key.
        stored = self.stored.get(name) or self.stored.get(name.removesuffix("-responses"))
        provider = ProviderMaker(name, preset, entry, origin, self.environment, stored).make()
        infos = (self._read_listed(provider, item) for item in entry.get("models", ()))
        return provider._replace(listed=tuple(info for info in infos if info.id))

    def _read_listed(self, provider: Provider, item: str | Mapping[str, Any]) -> ModelInfo:
        model = item if isinstance(item, str) else item.get("id", "")
        info = self.info(provider, model)
        if isinstance(item, str):
            return info
        return with_overrides(info, item)


_PDF_PROVIDERS = frozenset({"anthropic", "gemini", "openai", "openai-responses", "azure"})
"""Providers whose format supports PDFs, for every model that sees images."""
_PDF_ROUTES = ("anthropic/", "openai/", "google/")
"""Models to which OpenRouter passes PDFs unchanged; for others it would charge for text recognition."""


def _takes_documents(provider: Provider, model: str) -> bool:
    """Return whether PDFs are sent to a model. Azure accepts them in the Responses format only."""
    if provider.api_for(model) == "openai":
        if provider.id == "openrouter" and not model.startswith(_PDF_ROUTES):
            return False
        # The user set another address for OpenAI.
        unknown = provider.id == "openai" and provider.custom
        return not unknown and bool(provider.quirks.get("documents"))
    return provider.id in _PDF_PROVIDERS
