"""From a written name to a model of a provider: exact ids, loose names, new models, embedded ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from retinue.errors import UnknownModelError
from retinue.models.known import FREE, describe_bridged, known_model, makers_id, same_name, table_date
from retinue.models.names import (
    ModelScope,
    find_exact,
    has_version,
    load_scope,
    match_models,
    not_found,
    same_model,
    split_thinking,
    variants,
    version,
)
from retinue.models.program_models import NO_MODELS, ProgramModels
from retinue.models.protocol import Model, ModelInfo
from retinue.models.provider import Provider
from retinue.models.providers import LOCAL, LOCAL_VARIABLE, Providers

OFFLINE = ModelInfo("offline", "planner", "Search planner, no language model", 200_000, 8_192, False, False, FREE)
_TELLING = 4
"""Letters that tell a file from others."""
BRIDGE = "pydantic-ai"
"""`pydantic-ai/bedrock:model-id` goes through that library's models (extra `providers`)."""
_FAMILIES = {
    "anthropic": r"claude",
    "openai": r"gpt|o\d|chatgpt|codex|computer-use|ft:",
    "openai-responses": r"gpt|o\d|chatgpt|codex|computer-use|ft:",
    "gemini": r"gemini|gemma|learnlm|models/|tunedmodels/",
    "deepseek": r"deepseek",
    "xai": r"grok",
}
"""How the names of makers' models begin: a new one is taken as it is, anything else is a mistake."""
EMBEDDED = {name: Provider(id=name, api="embedded", base_url="") for name in ("offline", "local", BRIDGE)}


class ResolvedName(NamedTuple):
    """`warning` says that another version than the one named is meant; `note`, what else was
    read into the name. `path` is the GGUF file of a local model, `thinking` the level that
    ended the name, `model` one that the program brought along."""

    info: ModelInfo
    provider: Provider
    note: str | None = None
    warning: str | None = None
    thinking: str | None = None
    path: Path | None = None
    model: Model | None = None


class Resolver:
    """Names against everything that is configured. Holds no state but the providers'."""

    def __init__(self, providers: Providers, program_models: ProgramModels = NO_MODELS) -> None:
        self.providers = providers
        self._program_models = program_models

    def find(self, query: str) -> ResolvedName | None:
        """Return the model a name means, or None. `provider/model` with a provider that is configured
        never becomes another version: it means exactly that, or is taken as it is."""
        brought = self._program_models.get(query)
        if brought is not None:
            home = Provider(id=brought.info.provider, api="embedded", base_url="")
            return ResolvedName(brought.info, home, model=brought)
        head = query.strip().lower().partition("/")[0]
        if head in EMBEDDED and head not in self.providers.described:
            return self._find_embedded(query.strip())
        spellings = variants(query)
        for name in spellings:
            found = self._of_provider(name)
            if found is not None:
                return found
        plain, level = split_thinking(query)
        if level is not None:
            found = self.find(plain)
            if found is None:
                return None
            return found._replace(thinking=found.thinking or level)
        for name in spellings:
            # With a provider that is not configured, the same id elsewhere beats a likeness.
            info = self._same_id(name.partition("/")[2])
            if info is None and not self._names_wrong_maker(name):
                matches = self._match_in_scope(name, self.providers.models)
                info = matches[0] if len(matches) == 1 else None
            if info is not None:
                return self._loose(query, info)
        return self._find_weights(query.strip())

    def unknown(self, query: str, why: str = "") -> UnknownModelError:
        hints = [f"It is asked for by {why}."] if why else []
        if problem := self.problem(query):
            hints.append(f"{problem[0].upper()}{problem[1:]}.")
        hints += self.providers.describe_foreign_servers()
        return not_found(query, (*self.providers.models, *self.providers.local_models, OFFLINE), " ".join(hints))

    @cached_property
    def scope(self) -> ModelScope:
        """The models that the settings allow. Raise ConfigurationError for a list that cannot limit."""
        available = list(self.providers.models)
        for entry in self.providers.settings.enabled_models or ():
            head, _, model = entry.partition("/")
            provider = self.providers.get(head)
            # A part of a name is none that limits, and what it means would depend on the scope.
            if provider is None or (not has_version(model) and match_models(model, self.providers.models_of(provider))):
                continue
            exact = self._of_provider(entry)
            if exact is not None:
                available.append(exact.info)
        return load_scope(self.providers.settings, available)

    def is_whole(self, query: str) -> bool:
        """Return whether a name needs no list of a server: a model's whole id, or `provider/model` where the model has
        a version or is none that is known."""
        for name in variants(split_thinking(query)[0]):
            head, slash, model = name.partition("/")
            if head.lower() in EMBEDDED or self._program_models.get(name) is not None:
                return True
            provider = self.providers.get(head) if slash else None
            if provider is not None and (has_version(model) or self._is_id_or_new(provider, model)):
                return True
            if self._same_id(name) is not None:
                return True
        return False

    def _is_id_or_new(self, provider: Provider, model: str) -> bool:
        """Return whether a name is the whole id of a model that the provider is known to have, or fits none."""
        offered = self.providers.models_of(provider)
        return any(same_name(info.id) == same_name(model) for info in offered) or not match_models(model, offered)

    def problem(self, query: str) -> str | None:
        """Return why a name means no model, if there is more to say than that none has it."""
        if query.strip().lower().startswith("local/") and "local" not in self.providers.described:
            return f"set localModel, or {LOCAL_VARIABLE}, to the path of a GGUF file"
        for name in variants(query):
            if "/" in name:
                provider = self.providers.get(name.partition("/")[0])
                if provider is not None and provider.problem is not None:
                    return provider.problem
                if provider is not None and self._is_of_others(provider, name.partition("/")[2].strip()):
                    return f"{provider.id} has no such model; if it is new, describe it under `models` in the settings"
        matches = self._match(query)
        if len(matches) > 1:
            listed = ", ".join(sorted(info.full_name for info in matches))
            return f"it fits models of several families ({listed}): write more of the name"
        return None

    def _match(self, query: str) -> list[ModelInfo]:
        for name in variants(split_thinking(query)[0]):
            head, slash, model = name.partition("/")
            provider = self.providers.get(head) if slash else None
            if provider is not None and provider.problem is None:
                matches = self._match_in_scope(model, self.providers.models_of(provider))
            else:
                matches = self._match_in_scope(name, self.providers.models)
            if matches:
                return matches
        return []

    def _match_in_scope(self, name: str, offered: Sequence[ModelInfo]) -> list[ModelInfo]:
        """Return the models that a name fits among those that are allowed, or else among all: the caller is told
        that they are not allowed."""
        matches = match_models(name, offered)
        if not matches or not self.providers.settings.scope_models:
            return matches
        return match_models(name, [info for info in offered if self.scope.permits(info)]) or matches

    def _of_provider(self, name: str) -> ResolvedName | None:
        """`provider/model` with a usable provider: exact, the same in other words, or as it is."""
        head, slash, model = name.partition("/")
        model = model.strip()
        provider = None
        if slash and model:
            provider = self.providers.get(head)
        if provider is None or provider.problem is not None:
            return None
        exact = find_exact(f"{provider.id}/{model}", provider.listed)
        if exact is not None:
            return ResolvedName(exact, provider)
        known = known_model(provider.id, model)
        if known is not None:
            return ResolvedName(self.providers.info(provider, known.id), provider)
        if split_thinking(model)[1] is not None:
            return None
        offered = self.providers.models_of(provider)
        if has_version(model):
            same = [info for info in offered if same_model(model, info.id)]
            if len(same) == 1:
                return self._loose(name, same[0])
        else:
            matches = self._match_in_scope(model, offered)
            if len(matches) > 1:
                return None
            if matches:
                return self._loose(name, matches[0])
        if self._is_of_others(provider, model):
            return None
        return self._as_it_is(provider, model)

    def _is_of_others(self, provider: Provider, model: str) -> bool:
        """Return whether a name cannot be a model of this maker, however new. Servers at another address,
        and what settings describe, may have any."""
        family = _FAMILIES.get(provider.id)
        if family is None or provider.custom or provider.listed or provider.local:
            return False
        described = self.providers.settings.models
        if f"{provider.id}/{model}" in described or model in described:
            return False
        return re.match(family, model.lower()) is None

    def _names_wrong_maker(self, name: str) -> bool:
        head, slash, model = name.partition("/")
        provider = self.providers.get(head) if slash else None
        return provider is not None and provider.problem is None and self._is_of_others(provider, model.strip())

    def _same_id(self, model: str) -> ModelInfo | None:
        wanted = same_name(model.strip())
        for info in self.providers.models:
            if wanted and same_name(info.id) == wanted:
                return info
        return None

    def _as_it_is(self, provider: Provider, model: str) -> ResolvedName:
        info = self.providers.info(provider, model)
        settings = self.providers.settings.models
        if info.id in settings or info.full_name in settings or provider.listed or provider.local:
            return ResolvedName(info, provider)
        note = (
            f"{info.full_name} is not in the table of known models ({table_date()}): it is taken as it is, with a "
            f"window of {info.window} tokens{'' if info.prices else ' and no price'}; `models` in settings can say more"
        )
        return ResolvedName(info, provider, note)

    def _loose(self, query: str, info: ModelInfo) -> ResolvedName:
        provider = self.providers.get(info.provider)
        if provider is None:
            raise not_found(query, self.providers.models)
        query = query.strip()
        if query.lower() in (info.id.lower(), info.full_name.lower()):
            return ResolvedName(info, provider)
        named = None
        if "/" in query:
            named = self.providers.get(query.partition("/")[0])
        if named is not None and named.problem is None and named.id != info.provider:
            return ResolvedName(info, provider, warning=f"{named.id} has no such model: {info.full_name} is used")
        meant = f'"{query}" means {info.full_name} here'
        asked = version(makers_id(query))
        if asked and asked != version(info.id):
            return ResolvedName(info, provider, warning=f"{meant}: another version")
        head, slash, _ = query.partition("/")
        # pi's openai-codex is OpenAI.
        related = head.lower().startswith(info.provider.partition("-")[0])
        if slash and self.providers.get(head) is None and not related:
            return ResolvedName(
                info, provider, warning=f"{meant}: another provider, since '{head}' is not one that is known"
            )
        return ResolvedName(info, provider, meant)

    def _find_embedded(self, query: str) -> ResolvedName | None:
        name = query.lower()
        if name in ("offline", OFFLINE.full_name):
            return ResolvedName(OFFLINE, EMBEDDED["offline"])
        if name.startswith("offline"):
            return None
        wanted = query.partition("/")[2].strip()
        if name.startswith(BRIDGE):
            if ":" not in wanted:
                return None
            return ResolvedName(self.providers.overridden(describe_bridged(BRIDGE, wanted)), EMBEDDED[BRIDGE])
        named = self.providers.named_file
        path = _gguf(wanted)
        if path is None and named is not None and wanted.lower() in ("", named.stem.lower(), named.name.lower()):
            path = _gguf(str(named))
        if path is not None:
            return local_model(path)
        if wanted.lower() in ("", LOCAL.id):
            return ResolvedName(LOCAL, EMBEDDED["local"])
        return self._find_weights(query)

    def _find_weights(self, query: str) -> ResolvedName | None:
        """Return the GGUF file of this machine that a name means: its whole name, or how that begins. Nothing
        looser, because a file must not stand in for the model that an agent's file asks for."""
        wanted = same_name(query.lower().removeprefix("local/"))
        for info in self.providers.local_models:
            known = same_name(info.id)
            if wanted == known or (len(wanted) >= _TELLING and known.startswith(wanted)):
                return ResolvedName(info, EMBEDDED["local"], path=self.providers.weights[info.id])
        return None


def local_model(path: Path) -> ResolvedName:
    """Return a GGUF file as a model; its real window is known once it is loaded."""
    return ResolvedName(replace(LOCAL, id=path.stem, name=path.name), EMBEDDED["local"], path=path)


def _gguf(text: str) -> Path | None:
    """Return the file a text names. Only an existing file counts."""
    if not text.lower().endswith(".gguf"):
        return None
    path = Path(text).expanduser()
    if path.is_file():
        return path
    return None
