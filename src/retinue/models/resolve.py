"""Which model a name means, among those that are available and in scope.

A name may be `provider/id`, an id, a family (`haiku`), a display name (`Opus 4.6`) or parts of these in any order. The
order of preference is that of pi-subagents, so that its agent files mean the same here. Three rules are added: a part
of a name needs three characters, the newest model of a family is preferred, and a name that matches models of several
families is refused with a list of them.

The scope (`scopeModels`) is `enabledModels` of the settings, which include pi's files. Only exact `provider/id` entries
of available models limit the choice. If no entry does, the launch is refused, because the list was written to limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from retinue.core.spec import THINKING_LEVELS
from retinue.errors import ConfigurationError, UnknownModelError, UsageError
from retinue.models.build import NO_MODELS, ProgramModels
from retinue.models.known import FREE, describe_bridged, known_model, makers_id, same_name, table_date
from retinue.models.protocol import Model, ModelInfo
from retinue.models.providers import Provider, Providers
from retinue.settings.table import Settings

INHERIT: Final = "inherit"
INHERITING: Final = frozenset({INHERIT, "default"})
"""Names that leave the choice to the caller; the second is Claude Code's."""

_CLAUDE_CODE_ALIASES: Final = {"opusplan": "opus", "best": "opus"}
"""Claude Code's aliases for a model that is chosen per task (code.claude.com model-config)."""
MIN_PART_CHARACTERS: Final = 3
"""A shorter name must be the complete id of a model, such as `o3`."""
_MAX_LISTED_NAMES = 100
"""The names in an error message; a gateway has hundreds."""
_SPLIT = re.compile(r"[\s/-]+")
_VERSION_DATE = re.compile(r"\d{8}")


def find_model(query: str, available: Sequence[ModelInfo]) -> ModelInfo | None:
    """Return the model that `query` means; None if it matches no model, or models of several families."""
    matches = match_models(query, available)
    if len(matches) == 1:
        return matches[0]
    return None


def match_models(query: str, available: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Return the one model that `query` means, or the newest model of each family that it matches."""
    query = query.strip()
    exact = find_exact(query, available)
    if exact is not None:
        return [exact]
    matches = _of_one_version(query, _best_matches(query, available))
    if not matches and "/" in query:
        return match_models(query.partition("/")[2], available)
    return _newest_of_families(matches)


def find_exact(query: str, available: Iterable[ModelInfo]) -> ModelInfo | None:
    """Return the model whose `provider/id` equals the query, without regard to case."""
    name = query.lower()
    for info in available:
        if info.full_name.lower() == name:
            return info
    return None


def version(model: str) -> tuple[int, ...]:
    """Return the version in an id: `claude-opus-4-6-20260205` is (4, 6)."""
    numbers = []
    for word in _SPLIT.split(same_name(model)):
        if word.isdecimal() and len(word) < 6:
            numbers.append(int(word))
    return tuple(numbers)


def same_model(query: str, model: str) -> bool:
    """Return whether all words of `query` are words of the id `model`, and both have the same version. `sonnet-4.5` is
    `claude-sonnet-4-5`, but `gpt-4` is not `gpt-4o`, and `claude-sonnet-6` is no older Sonnet."""
    words = _words(query)
    return bool(words) and words <= _words(model) and version(query) == version(model)


def has_version(query: str) -> bool:
    """Return whether a name has a version: it then must not mean another one."""
    return any(character.isdigit() for character in query)


def variants(query: str) -> list[str]:
    """Return the spellings of a name, the name itself first: `id@provider` (CodingCode), `Name (copilot)` (GitHub
    Copilot), `sonnet[1m]` and `opusplan` (Claude Code), and the ids of Bedrock and Vertex."""
    spellings = [query.strip()]
    model, at, provider = spellings[0].rpartition("@")
    if at and model and provider and not _VERSION_DATE.fullmatch(provider):
        spellings.append(f"{provider}/{model}")
    plain = re.sub(r"\s*\([^()]*\)$|\[1m\]$", "", spellings[0])
    plain = _CLAUDE_CODE_ALIASES.get(plain.lower(), plain)
    if plain and plain != spellings[0]:
        spellings.append(plain)
    if makers_id(plain) != plain and "/" not in plain:
        spellings.append(makers_id(plain))
    return spellings


def alternatives(*names: str) -> list[str]:
    """Return the names in a list of alternatives, as agent files write it: `a, b` or `a | 'b'`."""
    choices = (name.strip(" \t'\"") for name in re.split(r"[,|]", ",".join(names)))
    return list(dict.fromkeys(filter(None, choices)))


def split_thinking(query: str) -> tuple[str, str | None]:
    """Return the name and the thinking level of `name:high`, as pi writes it; None for a name without a level."""
    name, colon, level = query.strip().rpartition(":")
    if colon and name and level.lower() in THINKING_LEVELS:
        return name, level.lower()
    return query, None


def not_found(query: str, available: Iterable[ModelInfo], hint: str = "") -> UnknownModelError:
    """Return the error for a name that matches no model, with similar names and the available ones."""
    # The newest model of a family comes first in `available`, and is the one to suggest.
    full_names = list(dict.fromkeys(info.full_name for info in available))
    names = sorted(full_names)
    remedy = [hint] if hint else []
    near = nearest_names(query, full_names)
    if near:
        remedy.append(f"Did you mean {' or '.join(near)}?")
    remedy.append("Available models:")
    remedy += [f"  {name}" for name in names[:_MAX_LISTED_NAMES] or ["(none)"]]
    if len(names) > _MAX_LISTED_NAMES:
        remedy.append(f"  … and {len(names) - _MAX_LISTED_NAMES} more: retinue models list")
    return UnknownModelError(f'Model not found: "{query}".', remedy="\n".join(remedy))


def nearest_names(query: str, names: Sequence[str]) -> list[str]:
    """Return up to three names of models that are most similar to `query`, with or without their providers."""
    from difflib import get_close_matches

    spellings: dict[str, str] = {}
    for name in names:
        full = same_name(name)
        for id in (full, full.partition("/")[2], full.rpartition("/")[2]):
            spellings.setdefault(id, name)
            # `claude-sonet` is similar to `claude-sonnet`, and less so to `claude-sonnet-5-5`.
            spellings.setdefault(re.sub(r"[-:]\d[-\d:b]*$", "", id), name)
    close = get_close_matches(same_name(query.strip()), spellings, n=6, cutoff=0.7)
    return list(dict.fromkeys(spellings[spelling] for spelling in close))[:3]


def _words(name: str) -> set[str]:
    return {word for word in _SPLIT.split(same_name(name)) if word and not _VERSION_DATE.fullmatch(word)}


def _best_matches(query: str, available: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Return the models that match a name in the first of five ways that gives any: the complete id, words of the id, a
    part of the id, a part of the display name, parts of all of these in any order."""
    name, words = same_name(query), _words(query)
    for fits in (_is_id, _has_words, _is_part_of_id, _is_part_of_name, _has_parts):
        matches = [info for info in available if fits(name, words, info)]
        if matches and fits is _is_id:
            return matches[:1]
        if matches:
            return matches
        if len(name) < MIN_PART_CHARACTERS:
            return []
    return []


def _is_id(name: str, words: set[str], info: ModelInfo) -> bool:
    return name in (same_name(info.id), same_name(info.full_name))


def _has_words(name: str, words: set[str], info: ModelInfo) -> bool:
    return bool(words) and words <= _words(info.id)


def _is_part_of_id(name: str, words: set[str], info: ModelInfo) -> bool:
    return name in same_name(info.full_name)


def _is_part_of_name(name: str, words: set[str], info: ModelInfo) -> bool:
    return name in same_name(info.name)


def _has_parts(name: str, words: set[str], info: ModelInfo) -> bool:
    if not any(len(word) >= MIN_PART_CHARACTERS for word in words):
        return False
    texts = [same_name(text) for text in (info.id, info.name, info.provider)]
    return all(any(word in text for text in texts) for word in words)


def _of_one_version(query: str, matches: list[ModelInfo]) -> list[ModelInfo]:
    """Return the matches of the version that a name has, if there are any."""
    asked_version = version(query)
    same = [info for info in matches if version(info.id)[: len(asked_version)] == asked_version]
    return same or matches


def _newest_of_families(matches: list[ModelInfo]) -> list[ModelInfo]:
    """Return the newest model of each family. `claude-sonnet-4-6-fast` is a variant of the family `claude-sonnet`, and
    is left out if that family also matches. Of equal versions the shortest id is taken, then the first one."""
    families: dict[frozenset[str], list[ModelInfo]] = {}
    for info in matches:
        families.setdefault(_family(info.id), []).append(info)
    plainest = min(families, key=len, default=frozenset())
    if all(plainest <= family for family in families):
        families = {family: members for family, members in families.items() if family == plainest}
    newest = []
    for members in families.values():
        newest.append(max(members, key=lambda info: (version(info.id), -len(info.id))))
    return newest


def _family(model: str) -> frozenset[str]:
    """Return the words of an id without version and date."""
    return frozenset(word for word in _words(model) if not word.isdecimal())


class OutOfScopeError(UsageError):
    code = "MODEL_NOT_IN_SCOPE"


class ModelScope(Struct, frozen=True):
    """The allowed models by full name. An empty list allows all."""

    allowed: tuple[str, ...] = ()

    def permits(self, info: ModelInfo) -> bool:
        return not self.allowed or info.full_name.lower() in {name.lower() for name in self.allowed}

    def refusal(self, query: str) -> OutOfScopeError:
        """Return the error for a caller that chose a model which is not allowed."""
        listed = "\n".join(f"  {name}" for name in self.allowed)
        return OutOfScopeError(f'Model not in scope: "{query}".', remedy=f"Allowed models:\n{listed}")

    def warning(self, info: ModelInfo, source: str) -> str:
        """Return the warning for a model that a file or a parent chose. It is used anyway."""
        return f"{info.full_name} ({source}) is not among the enabled models: {', '.join(self.allowed)}"


def load_scope(settings: Settings, available: Iterable[ModelInfo]) -> ModelScope:
    """Return the scope of the settings. Raise ConfigurationError for a list without any available model."""
    if not settings.scope_models or not settings.enabled_models:
        return ModelScope()
    entries = {entry.lower() for entry in settings.enabled_models}
    allowed = set()
    for info in available:
        if info.full_name.lower() in entries:
            allowed.add(info.full_name)
    if not allowed:
        raise ConfigurationError(
            f"scopeModels is on, but enabledModels ({settings.origin('enabled_models')}) has no available model: "
            f"{', '.join(settings.enabled_models)}.",
            remedy="Write each model as provider/id, without patterns (see: retinue models list), "
            "or set scopeModels to false.",
        )
    return ModelScope(tuple(sorted(allowed)))


OFFLINE = ModelInfo("offline", "planner", "Search planner, no language model", 200_000, 8_192, False, False, FREE)
BRIDGE = "pydantic-ai"
"""`pydantic-ai/bedrock:model-id` goes through that library's models (extra `providers`)."""
_NAME_PATTERNS = {
    "anthropic": r"claude",
    "openai": r"gpt|o\d|chatgpt|codex|computer-use|ft:",
    "openai-responses": r"gpt|o\d|chatgpt|codex|computer-use|ft:",
    "gemini": r"gemini|gemma|learnlm|models/|tunedmodels/",
    "deepseek": r"deepseek",
    "xai": r"grok",
}
"""How the names of a maker's models begin. Any other name is refused as a mistake."""
EMBEDDED = {name: Provider(id=name, api="embedded", base_url="") for name in ("offline", BRIDGE)}


Source = Literal["file", "call", "parent", "environment", "settings", "key", "server", "offline"]


class ModelSelection(NamedTuple):
    """A chosen model. `why` is one sentence for people. `warnings` must be shown with the result, `notes` may be.
    `thinking` is the level at the end of the name (`gpt-5.5:high`). `attempts` is how often a request may be sent.
    `fallbacks` take over, in order, if the model cannot answer."""

    info: ModelInfo
    provider: Provider
    source: Source = "call"
    why: str = ""
    thinking: str | None = None
    attempts: int = 15
    fallbacks: tuple[ModelSelection, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    model: Model | None = None
    """A model object of the program, which is used unchanged."""


class Resolver:
    """Finds the models that names mean, among the configured providers."""

    def __init__(self, providers: Providers, program_models: ProgramModels = NO_MODELS) -> None:
        self.providers = providers
        self._program_models = program_models

    def find(self, query: str) -> ModelSelection | None:
        """Return the model that a name means, or None. `provider/model` with a configured provider never means another
        version: an unknown model is sent under the name as written."""
        program_model = self._program_models.get(query)
        if program_model is not None:
            program = Provider(id=program_model.info.provider, api="embedded", base_url="")
            return ModelSelection(program_model.info, program, model=program_model)
        head = query.strip().lower().partition("/")[0]
        if head in EMBEDDED and head not in self.providers.described:
            return self._find_embedded(query.strip())
        spellings = variants(query)
        for name in spellings:
            resolved = self._of_provider(name)
            if resolved is not None:
                return resolved
        plain, level = split_thinking(query)
        if level is not None:
            resolved = self.find(plain)
            if resolved is None:
                return None
            return resolved._replace(thinking=resolved.thinking or level)
        for name in spellings:
            # If the provider is not configured, the same id of another provider is preferred to a similar name.
            info = self._same_id(name.partition("/")[2])
            if info is None and not self._names_wrong_maker(name):
                matches = self._match_in_scope(name, self.providers.models)
                info = matches[0] if len(matches) == 1 else None
            if info is not None:
                return self._loose(query, info)
        return None

    def unknown(self, query: str, why: str = "", defaults: Iterable[ModelInfo] = ()) -> UnknownModelError:
        """Return the error for a name that matches no model. `defaults` are listed with the available models."""
        hints = [f"It is asked for by {why}."] if why else []
        if problem := self.problem(query):
            hints.append(f"{problem[0].upper()}{problem[1:]}.")
        hints += self.providers.describe_foreign_servers()
        return not_found(query, (*defaults, *self.providers.models, OFFLINE), " ".join(hints))

    @cached_property
    def scope(self) -> ModelScope:
        """The models that the settings allow. Raise ConfigurationError for a list without any available model."""
        available = list(self.providers.models)
        for entry in self.providers.settings.enabled_models or ():
            head, _, model = entry.partition("/")
            provider = self.providers.get(head)
            # A part of a name does not limit the models: its meaning would depend on the scope.
            if provider is None or (not has_version(model) and match_models(model, self.providers.models_of(provider))):
                continue
            exact = self._of_provider(entry)
            if exact is not None:
                available.append(exact.info)
        return load_scope(self.providers.settings, available)

    def is_whole(self, query: str) -> bool:
        """Return whether a name is understood without the list of a server: the complete id of a model, or
        `provider/model` if the model has a version or is unknown."""
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
        """Return whether a name is the complete id of a known model of the provider, or matches none of them."""
        offered = self.providers.models_of(provider)
        return any(same_name(info.id) == same_name(model) for info in offered) or not match_models(model, offered)

    def problem(self, query: str) -> str | None:
        """Return why a name means no model, if there is another reason than that no model has it."""
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
        """Return the allowed models that a name matches. If it matches none, return those of all models: the caller
        reports that they are not allowed."""
        matches = match_models(name, offered)
        if not matches or not self.providers.settings.scope_models:
            return matches
        return match_models(name, [info for info in offered if self.scope.permits(info)]) or matches

    def _of_provider(self, name: str) -> ModelSelection | None:
        """Return the model of `provider/model`, if the provider can be used: the exact one, one with the same words, or
        an unknown one under the name as written."""
        head, slash, model = name.partition("/")
        model = model.strip()
        provider = None
        if slash and model:
            provider = self.providers.get(head)
        if provider is None or provider.problem is not None:
            return None
        exact = find_exact(f"{provider.id}/{model}", provider.listed)
        if exact is not None:
            return ModelSelection(exact, provider)
        known_info = known_model(provider.id, model)
        if known_info is not None:
            return ModelSelection(self.providers.info(provider, known_info.id), provider)
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
        return self._take_unknown(provider, model)

    def _is_of_others(self, provider: Provider, model: str) -> bool:
        """Return whether a name cannot be that of a model of this maker. Servers at other addresses may have any model,
        and so may the settings."""
        family = _NAME_PATTERNS.get(provider.id)
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
        name = same_name(model.strip())
        for info in self.providers.models:
            if name and same_name(info.id) == name:
                return info
        return None

    def _take_unknown(self, provider: Provider, model: str) -> ModelSelection:
        info = self.providers.info(provider, model)
        settings = self.providers.settings.models
        if info.id in settings or info.full_name in settings or provider.listed or provider.local:
            return ModelSelection(info, provider)
        note = (
            f"{info.full_name} is not in the table of known models ({table_date()}): it is taken as it is, with a "
            f"window of {info.window} tokens{'' if info.prices else ' and no price'}; `models` in settings can say more"
        )
        return ModelSelection(info, provider, notes=(note,))

    def _loose(self, query: str, info: ModelInfo) -> ModelSelection:
        """Return the model of a name that does not name it exactly, with what was read into the name."""
        provider = self.providers.get(info.provider)
        if provider is None:
            raise not_found(query, self.providers.models)
        query = query.strip()
        if query.lower() in (info.id.lower(), info.full_name.lower()):
            return ModelSelection(info, provider)
        head, slash, _ = query.partition("/")
        named = self.providers.get(head) if slash else None
        meaning = f'"{query}" means {info.full_name} here'
        named_version = version(makers_id(query))
        # pi's openai-codex is OpenAI.
        is_related = head.lower().startswith(info.provider.partition("-")[0])
        if named is not None and named.problem is None and named.id != info.provider:
            warning = f"{named.id} has no such model: {info.full_name} is used"
        elif named_version and named_version != version(info.id):
            warning = f"{meaning}: another version"
        elif slash and named is None and not is_related:
            warning = f"{meaning}: another provider, since '{head}' is not one that is known"
        else:
            return ModelSelection(info, provider, notes=(meaning,))
        return ModelSelection(info, provider, warnings=(warning,))

    def _find_embedded(self, query: str) -> ModelSelection | None:
        name = query.lower()
        if name in ("offline", OFFLINE.full_name):
            return ModelSelection(OFFLINE, EMBEDDED["offline"])
        if name.startswith("offline"):
            return None
        model_name = query.partition("/")[2].strip()
        if name.startswith(BRIDGE):
            if ":" not in model_name:
                return None
            return ModelSelection(self.providers.overridden(describe_bridged(BRIDGE, model_name)), EMBEDDED[BRIDGE])
        return None
