"""Which model a name means, among those that are available and in scope.

A name may be `provider/id`, an id, a family (`haiku`), a display name (`Opus 4.6`) or parts of
these in any order. The order of preference is pi-subagents', so that its agent files mean the same
here, with three rules of our own: a part of a name needs three characters, of one family the newest
model is meant, and a name that fits models of several families is refused with these models.

The scope (`scopeModels`) is `enabledModels` of the settings, of which pi's files are a layer. Only
exact `provider/id` entries of available models limit the choice. A list without any such entry refuses
the launch, because it was written to limit and cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from retinue.errors import ConfigurationError, UnknownModelError, UsageError
from retinue.models.build import NO_MODELS, ProgramModels
from retinue.models.known import FREE, describe_bridged, known_model, makers_id, same_name, table_date
from retinue.models.protocol import Model, ModelInfo
from retinue.models.providers import Provider, Providers
from retinue.settings.table import Settings

INHERIT: Final = "inherit"
INHERITING: Final = frozenset({INHERIT, "default"})
"""Words that leave the choice to the caller; the second is Claude Code's."""
THINKING_LEVELS: Final = frozenset({"off", "minimal", "low", "medium", "high", "xhigh", "max"})

_CLAUDE_CODE: Final = {"opusplan": "opus", "best": "opus"}
"""Its aliases for a model that is chosen per task (code.claude.com model-config)."""
MIN_PART_CHARACTERS: Final = 3
"""Fewer characters only mean a whole id, such as `o3`."""
_SHOWN = 100
"""Names in an error; a gateway has hundreds."""
_SPLIT = re.compile(r"[\s/-]+")
_DATE = re.compile(r"\d{8}")


def find_model(query: str, available: Sequence[ModelInfo]) -> ModelInfo | None:
    """Return the model that `query` means; None if it fits no model, or models of several families."""
    matches = match_models(query, available)
    if len(matches) == 1:
        return matches[0]
    return None


def match_models(query: str, available: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Return the one model that `query` means, or the newest model of each family that it fits."""
    query = query.strip()
    exact = find_exact(query, available)
    if exact is not None:
        return [exact]
    matches = _of_one_version(query, _best_matches(query, available))
    if not matches and "/" in query:
        return match_models(query.partition("/")[2], available)
    return _newest_of_families(matches)


def find_exact(query: str, available: Iterable[ModelInfo]) -> ModelInfo | None:
    """Return the model whose `provider/id` is the query to the letter, capitals aside."""
    name = query.lower()
    for info in available:
        if info.full_name.lower() == name:
            return info
    return None


def version(model: str) -> tuple[int, ...]:
    """Return the version in an id: `claude-opus-4-6-20260205` is (4, 6)."""
    numbers = []
    for part in _SPLIT.split(same_name(model)):
        if part.isdecimal() and len(part) < 6:
            numbers.append(int(part))
    return tuple(numbers)


def same_model(query: str, model: str) -> bool:
    """Return whether `query`, though not equal, can only mean the id `model`: every word of it is a
    word of the id, and the version is the same. `sonnet-4.5` is `claude-sonnet-4-5`; `gpt-4` is
    not `gpt-4o`, nor `claude-sonnet-6` any older Sonnet."""
    words, own = _words(query), _words(model)
    return bool(words) and words <= own and version(query) == version(model)


def has_version(query: str) -> bool:
    """Return whether a name pins something: it then must not be taken for another version."""
    return any(character.isdigit() for character in query)


def variants(query: str) -> list[str]:
    """Spellings of other programs that stand for the same name, the name itself first:
    `id@provider` (CodingCode), `Name (copilot)` (GitHub Copilot), `sonnet[1m]` and `opusplan`
    (Claude Code), and the ids of Bedrock and Vertex."""
    spellings = [query.strip()]
    model, at, provider = spellings[0].rpartition("@")
    if at and model and provider and not _DATE.fullmatch(provider):
        spellings.append(f"{provider}/{model}")
    plain = re.sub(r"\s*\([^()]*\)$|\[1m\]$", "", spellings[0])
    plain = _CLAUDE_CODE.get(plain.lower(), plain)
    if plain and plain != spellings[0]:
        spellings.append(plain)
    if makers_id(plain) != plain and "/" not in plain:
        spellings.append(makers_id(plain))
    return spellings


def alternatives(*names: str) -> list[str]:
    """Return what agent files write to mean "the first of these that there is": `a, b` and `a | 'b'`."""
    choices: dict[str, None] = {}
    for part in re.split(r"[,|]", ",".join(names)):
        choices[part.strip(" \t'\"")] = None
    choices.pop("", None)
    return list(choices)


def split_thinking(query: str) -> tuple[str, str | None]:
    """`name:high` as pi writes it: the name and the thinking level, if the end is one."""
    name, colon, level = query.strip().rpartition(":")
    if colon and name and level.lower() in THINKING_LEVELS:
        return name, level.lower()
    return query, None


def not_found(query: str, available: Iterable[ModelInfo], hint: str = "") -> UnknownModelError:
    """Return the error of a name that matches nothing: what is nearest, then what there is."""
    # Of a family the newest stands first in what is available, and is the one to suggest.
    full_names = list(dict.fromkeys(info.full_name for info in available))
    names = sorted(full_names)
    remedy = [hint] if hint else []
    near = nearest_names(query, full_names)
    if near:
        remedy.append(f"Did you mean {' or '.join(near)}?")
    remedy.append("Available models:")
    remedy += [f"  {name}" for name in names[:_SHOWN] or ["(none)"]]
    if len(names) > _SHOWN:
        remedy.append(f"  … and {len(names) - _SHOWN} more: retinue models list")
    return UnknownModelError(f'Model not found: "{query}".', remedy="\n".join(remedy))


def nearest_names(query: str, names: Sequence[str]) -> list[str]:
    """Return up to three names of models that look most like `query`, with or without their providers."""
    from difflib import get_close_matches

    spellings: dict[str, str] = {}
    for name in names:
        full = same_name(name)
        for part in (full, full.partition("/")[2], full.rpartition("/")[2]):
            spellings.setdefault(part, name)
            # `claude-sonet` is near to `claude-sonnet`, and only then to `claude-sonnet-5-5`.
            spellings.setdefault(re.sub(r"[-:]\d[-\d:b]*$", "", part), name)
    close = get_close_matches(same_name(query.strip()), spellings, n=6, cutoff=0.7)
    return list(dict.fromkeys(spellings[spelling] for spelling in close))[:3]


def _words(name: str) -> set[str]:
    words = set()
    for word in _SPLIT.split(same_name(name)):
        if word and not _DATE.fullmatch(word):
            words.add(word)
    return words


def _best_matches(query: str, available: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Return the models that fit a name in the best of five ways: the whole id, words of the id, a part of the id,
    a part of the display name, parts of all of these in any order."""
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
    """Return the newest model of each family. `claude-sonnet-4-6-fast` is a variant of the family `claude-sonnet`, so
    it is left out where that family is there too. Of equal versions the plainest id is taken, then the first one."""
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
    """The allowed models by full name; empty allows all."""

    allowed: tuple[str, ...] = ()

    def permits(self, info: ModelInfo) -> bool:
        return not self.allowed or info.full_name.lower() in {name.lower() for name in self.allowed}

    def refusal(self, query: str) -> OutOfScopeError:
        """Return the error for a caller that chose a model outside the list."""
        listed = "\n".join(f"  {name}" for name in self.allowed)
        return OutOfScopeError(f'Model not in scope: "{query}".', remedy=f"Allowed models:\n{listed}")

    def warning(self, info: ModelInfo, source: str) -> str:
        """Return the warning for a model that a file or a parent brought: it runs all the same."""
        return f"{info.full_name} ({source}) is not among the enabled models: {', '.join(self.allowed)}"


def load_scope(settings: Settings, available: Iterable[ModelInfo]) -> ModelScope:
    """Return the scope that the settings ask for. Raise ConfigurationError for a list that no available model is
    in."""
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
EMBEDDED = {name: Provider(id=name, api="embedded", base_url="") for name in ("offline", BRIDGE)}


class ResolvedName(NamedTuple):
    """`warning` says that another version than the one named is meant; `note`, what else was
    read into the name. `thinking` is the level that
    ended the name, `model` one that the program brought along."""

    info: ModelInfo
    provider: Provider
    note: str | None = None
    warning: str | None = None
    thinking: str | None = None
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
            # With a provider that is not configured, the same id elsewhere beats a likeness.
            info = self._same_id(name.partition("/")[2])
            if info is None and not self._names_wrong_maker(name):
                matches = self._match_in_scope(name, self.providers.models)
                info = matches[0] if len(matches) == 1 else None
            if info is not None:
                return self._loose(query, info)
        return None

    def unknown(self, query: str, why: str = "") -> UnknownModelError:
        hints = [f"It is asked for by {why}."] if why else []
        if problem := self.problem(query):
            hints.append(f"{problem[0].upper()}{problem[1:]}.")
        hints += self.providers.describe_foreign_servers()
        return not_found(query, (*self.providers.models, OFFLINE), " ".join(hints))

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
        known_info = known_model(provider.id, model)
        if known_info is not None:
            return ResolvedName(self.providers.info(provider, known_info.id), provider)
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
        name = same_name(model.strip())
        for info in self.providers.models:
            if name and same_name(info.id) == name:
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
        model_name = query.partition("/")[2].strip()
        if name.startswith(BRIDGE):
            if ":" not in model_name:
                return None
            return ResolvedName(self.providers.overridden(describe_bridged(BRIDGE, model_name)), EMBEDDED[BRIDGE])
        return None
