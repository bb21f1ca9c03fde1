"""Which model a run gets, and why. All front ends use the same order:

    the agent's file > the call > the parent's model > RETINUE_MODEL > settings
    > a provider that has a key > a server that answers
    > the offline planner

A chosen name is never replaced without a message. An unknown name in the call, the environment or the settings is an
error that lists the available models. If the model of an agent's file is not available here, the next choice is used
with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from retinue.http.address import display_url
from retinue.models.build import NO_MODELS, ProgramModels, build_model
from retinue.models.efforts import level_of, takes_level
from retinue.models.inventory import ask_named_servers, ask_servers, default_of, first_chat_model
from retinue.models.known import DEFAULT_MODELS, Quirks, known_models
from retinue.models.protocol import ModelInfo
from retinue.models.providers import Provider, Providers
from retinue.models.resolve import (
    EMBEDDED,
    INHERITING,
    OFFLINE,
    ModelSelection,
    Resolver,
    alternatives,
    version,
)
from retinue.settings.table import Settings

if TYPE_CHECKING:
    from retinue.http.transport import Transport

__all__ = ["ModelSelection", "build_model", "default_model", "select_model"]

MODEL_VARIABLE = "RETINUE_MODEL"


async def select_model(
    query: str | None = None,
    *,
    file_model: str | None = None,
    fallbacks: Sequence[str] = (),
    parent: ModelInfo | None = None,
    settings: Settings,
    environment: Mapping[str, str],
    transport: Transport | None = None,
    providers: Providers | None = None,
    program_models: ProgramModels = NO_MODELS,
    small: bool = False,
) -> ModelSelection:
    """Return the model of a run. Raise UnknownModelError for a chosen name that means no model, and OutOfScopeError for
    one that the scope forbids. Servers are asked, for half a second, only if no name is given or a name is not known
    otherwise. `providers` are those that the caller has already asked. With `small`, a run without a named model gets
    the small model of the provider, if there is one, and falls back to its usual model."""
    chooser = _Chooser(providers or Providers(settings, environment), settings, environment, transport, program_models)
    selection = (
        await chooser.from_file(file_model, fallbacks, query)
        or await chooser.from_call(query)
        or chooser.from_parent(parent)
        or await chooser.from_environment()
        or await chooser.from_settings()
        or await chooser.from_key()
        or await chooser.from_server()
        or ModelSelection(
            info=OFFLINE,
            provider=EMBEDDED["offline"],
            source="offline",
            why="no model is named, no key is set and no server answers",
        )
    )
    if small and selection.source not in ("file", "call"):
        selection = await chooser.small_beside(selection)
    return await chooser.finish(selection, query)


class _Chooser:
    """One method per step; each returns a selection or None."""

    def __init__(
        self,
        providers: Providers,
        settings: Settings,
        environment: Mapping[str, str],
        transport: Transport | None = None,
        program_models: ProgramModels = NO_MODELS,
    ) -> None:
        self.providers, self.settings, self.environment = providers, settings, environment
        self.transport = transport
        self.resolver = Resolver(providers, program_models)
        self.unmet: list[str] = []
        self.warnings: list[str] = []
        self.later: list[str] = []
        """Models that the file names after the chosen one: they take over during the run."""

    async def find(self, name: str) -> ModelSelection | None:
        """Return the model that a name means. Servers that list their models are asked before a part of a name is
        matched, because it can only mean an available model. All other servers are asked if the name is still
        unknown."""
        if not self.resolver.is_whole(name):
            await ask_named_servers(self.providers, self.transport)
        resolved = self.resolver.find(name)
        if resolved is None and not self.providers.asked:
            await ask_servers(self.providers, self.transport)
            resolved = self.resolver.find(name)
        return resolved

    async def require(self, name: str, why: str = "") -> ModelSelection:
        resolved = await self.find(name)
        if resolved is None:
            raise self.resolver.unknown(name, why, self._defaults())
        return resolved

    def _defaults(self) -> list[ModelInfo]:
        """Return the models that the environment and the settings name, which no server needs to list."""
        names = (self.environment.get(MODEL_VARIABLE, "").strip(), self.settings.model or "")
        selections = (self.resolver.find(name) for name in names if name and name not in INHERITING)
        return [selection.info for selection in selections if selection is not None]

    async def from_file(self, model: str | None, fallbacks: Sequence[str], query: str | None) -> ModelSelection | None:
        if model is None or model in INHERITING:
            return None
        names = alternatives(model, *fallbacks)
        for index, name in enumerate(names):
            resolved = await self.find(name)
            if resolved is not None:
                self.later = names[index + 1 :]
                selection = resolved._replace(source="file", why=f'the agent\'s file asks for "{name}"')
                if self.unmet:
                    before = f"the file's first choice {' or '.join(self.unmet)} is not available here"
                    selection = selection._replace(notes=(before, *selection.notes))
                    self.unmet.clear()
                return self._note_call(selection, query)
            reason = self.resolver.problem(name)
            self.unmet.append(f'"{name}"' + (f" ({reason})" if reason else ""))
        return None

    def _note_call(self, selection: ModelSelection, query: str | None) -> ModelSelection:
        """Add a note if the call asked for another model than the file."""
        if query is None or query in INHERITING:
            return selection
        asked = self.resolver.find(query)
        if asked is not None and asked.info.full_name == selection.info.full_name:
            return selection
        note = f'the call asked for "{query}"; the agent\'s file decides'
        return selection._replace(notes=(*selection.notes, note))

    async def from_call(self, query: str | None) -> ModelSelection | None:
        if query is None or query in INHERITING:
            return None
        return (await self.require(query))._replace(why=f'"{query}" was asked for')

    def from_parent(self, parent: ModelInfo | None) -> ModelSelection | None:
        if parent is None:
            return None
        resolved = self.resolver.find(parent.full_name)
        if resolved is None:
            raise self.resolver.unknown(parent.full_name, "the run it is started from")
        why = "inherited from the run it is started from"
        return resolved._replace(source="parent", why=why, notes=(), warnings=())

    async def from_environment(self) -> ModelSelection | None:
        name = self.environment.get(MODEL_VARIABLE, "").strip()
        if not name or name in INHERITING:
            return None
        resolved = await self.require(name, MODEL_VARIABLE)
        return resolved._replace(source="environment", why=f'{MODEL_VARIABLE} is "{name}"')

    async def from_settings(self) -> ModelSelection | None:
        name = self.settings.model
        if not name or name in INHERITING:
            return None
        where = str(self.settings.origin("model"))
        resolved = await self.require(name, f"the settings ({where})")
        return resolved._replace(source="settings", why=f'"{name}" is set ({where})')

    async def from_key(self) -> ModelSelection | None:
        for provider in self.providers.configured():
            if not provider.key_source or self._not_first_choice(provider):
                continue
            info = await default_of(self.providers, provider, self.transport)
            if info is not None:
                reason = f"{provider.key_source} is set"
                if provider.key_source != provider.key_variable:
                    reason = f"there is {provider.key_source}"
                return ModelSelection(info, provider, "key", f"no model is named, and {reason}")
        return None

    def _not_first_choice(self, provider: Provider) -> bool:
        """Return whether another id of OpenAI goes first for the same key: `openai-responses` at OpenAI's own address,
        `openai` at others."""
        return (provider.id == "openai" and not provider.custom) or (
            provider.id == "openai-responses" and provider.custom
        )

    async def from_server(self) -> ModelSelection | None:
        await ask_servers(self.providers, self.transport)
        for provider in self.providers.configured():
            served = self.providers.served(provider)
            if self._not_first_choice(provider) or served is None or not (served or provider.listed):
                continue
            info = provider.listed[0] if provider.listed else self.providers.info(provider, first_chat_model(served))
            why = f"no model is named, and the server '{provider.id}' answers at {display_url(provider.base_url)}"
            return ModelSelection(info, provider, "server", why)
        return None

    async def small_beside(self, usual: ModelSelection) -> ModelSelection:
        """Return the small model of the provider with `usual` as its fallback, or `usual` if there is none."""
        if usual.provider.api == "embedded" or usual.model is not None:
            return usual
        await ask_named_servers(self.providers, self.transport)
        info = small_model(usual.info, self.providers.models_of(usual.provider))
        if info is None or (self.settings.scope_models and not self.resolver.scope.permits(info)):
            return usual
        why = f"it is the small model beside {usual.info.full_name} (exploreModel)"
        return ModelSelection(info, usual.provider, "settings", why, fallbacks=(usual,), warnings=usual.warnings)

    async def finish(self, selection: ModelSelection, query: str | None) -> ModelSelection:
        """Add the notes about the choice, and check it against the scope."""
        warnings = list(self.warnings)
        if selection.source == "offline":
            warnings += self.providers.describe_foreign_servers()
        if self.unmet:
            warnings.append(
                f"the agent's model {' or '.join(self.unmet)} is not available here; "
                f"{selection.info.full_name} is used instead"
            )
        warnings += selection.provider.notes
        if self.settings.scope_models and selection.provider.api != "embedded":
            warnings += self._check_scope(selection, query)
        attempts = 1
        if self.settings.retry_enabled:
            attempts = self.settings.retry_max_attempts
        fallbacks = tuple(fallback._replace(attempts=attempts) for fallback in selection.fallbacks)
        selection = selection._replace(
            attempts=attempts, fallbacks=fallbacks, warnings=(*selection.warnings, *warnings)
        )
        return await self._with_fallbacks(selection)

    async def _with_fallbacks(self, selection: ModelSelection) -> ModelSelection:
        """Add the models that may take over. A model is left out, with a note, if it is not available here, is not in
        scope, or has no known price while the first model has one."""
        names = [*self.later, *self.settings.fallback_models]
        if not names or selection.provider.api == "embedded":
            return selection
        chosen = list(selection.fallbacks)
        notes: list[str] = []
        taken = {model.info.full_name for model in (selection, *chosen)}
        for name in names:
            resolved = await self.find(name)
            if resolved is None:
                reason = self.resolver.problem(name)
                notes.append(f'the fallback "{name}" is not available here' + (f" ({reason})" if reason else ""))
            elif resolved.info.full_name not in taken:
                other = resolved._replace(source="settings", why=f"{selection.info.full_name} cannot answer")
                if self.settings.scope_models and self._check_scope(other, None):
                    notes.append(f"the fallback {resolved.info.full_name} is not among the enabled models")
                elif resolved.info.prices is None and selection.info.prices is not None:
                    notes.append(f"the fallback {resolved.info.full_name} has no known price and is left out")
                else:
                    taken.add(resolved.info.full_name)
                    chosen.append(other._replace(attempts=selection.attempts))
        return selection._replace(fallbacks=tuple(chosen), notes=(*selection.notes, *notes))

    def _check_scope(self, selection: ModelSelection, query: str | None) -> list[str]:
        scope = self.resolver.scope
        if scope.permits(selection.info):
            return []
        if selection.source == "call":
            raise scope.refusal(query or selection.info.full_name)
        return [scope.warning(selection.info, selection.why)]


def default_model(provider: str) -> str | None:
    """Return the model to use if only a key is given: the newest of the family for everyday work."""
    family = []
    for info in known_models(provider):
        if provider not in DEFAULT_MODELS:
            return info.id
        if set(DEFAULT_MODELS[provider]) <= set(info.id.replace(".", "-").split("-")):
            family.append(info.id)
    return max(family, key=lambda model: (version(model), -len(model)), default=None)


_SMALL_MODEL_WORDS = {"claude": "haiku", "gpt": "mini", "gemini": "flash", "mistral": "small"}
"""The word in the names of the small models of each family."""


def small_model(beside: ModelInfo, models: Sequence[ModelInfo]) -> ModelInfo | None:
    """Return the newest small model in the family of `beside` among `models`. Return None if there is none that is
    known to be cheaper than `beside`."""
    words = _words(beside)
    for family, word in _SMALL_MODEL_WORDS.items():
        if family not in words or word in words:
            continue
        small = [info for info in models if {family, word} <= _words(info) and _is_cheaper(info, beside)]
        return max(small, key=lambda info: (version(info.id), -len(info.id)), default=None)
    return None


def _words(info: ModelInfo) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9]+", info.id.lower()))


def _is_cheaper(info: ModelInfo, other: ModelInfo) -> bool:
    if info.prices is None or other.prices is None:
        return info.prices is other.prices
    return info.prices.input < other.prices.input


def unsent_level(selection: ModelSelection, thinking: str) -> str | None:
    """Return the sentence that explains why a level of thinking is not sent to a model; None if it is sent."""
    level, provider, info = level_of(thinking), selection.provider, selection.info
    taken = Quirks.of(provider.quirks).reasoning_effort
    if not (info.thinking if taken is None else taken):
        if level in (None, "off"):
            return None
        return (
            f"{info.full_name} is not known to think, so the level '{thinking}' is not sent. If it does think, "
            f'say so in settings: {{"models": {{"{info.full_name}": {{"thinking": true}}}}}}'
        )
    by_effort = provider.api_for(info.id) in ("openai", "openai-responses")
    if level is None or not by_effort or takes_level(provider.id, info.id, level):
        return None
    return f"{info.full_name} takes no levels of thinking, so '{thinking}' is not sent: it thinks as much as it wants."
