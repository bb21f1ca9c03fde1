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
from typing import Final

from msgspec import Struct

from retinue.errors import ConfigurationError, UnknownModelError, UsageError
from retinue.models.known import makers_id, same_name
from retinue.models.protocol import ModelInfo
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
    wanted = query.lower()
    for info in available:
        if info.full_name.lower() == wanted:
            return info
    return None


def version(model: str) -> tuple[int, ...]:
    """Return the version in an id: `claude-opus-4-6-20260205` is (4, 6)."""
    found = []
    for part in _SPLIT.split(same_name(model)):
        if part.isdecimal() and len(part) < 6:
            found.append(int(part))
    return tuple(found)


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
    found = [query.strip()]
    model, at, provider = found[0].rpartition("@")
    if at and model and provider and not _DATE.fullmatch(provider):
        found.append(f"{provider}/{model}")
    plain = re.sub(r"\s*\([^()]*\)$|\[1m\]$", "", found[0])
    plain = _CLAUDE_CODE.get(plain.lower(), plain)
    if plain and plain != found[0]:
        found.append(plain)
    if makers_id(plain) != plain and "/" not in plain:
        found.append(makers_id(plain))
    return found


def alternatives(*names: str) -> list[str]:
    """Return what agent files write to mean "the first of these that there is": `a, b` and `a | 'b'`."""
    found: dict[str, None] = {}
    for part in re.split(r"[,|]", ",".join(names)):
        found[part.strip(" \t'\"")] = None
    found.pop("", None)
    return list(found)


def split_thinking(query: str) -> tuple[str, str | None]:
    """`name:high` as pi writes it: the name and the thinking level, if the end is one."""
    name, colon, level = query.strip().rpartition(":")
    if colon and name and level.lower() in THINKING_LEVELS:
        return name, level.lower()
    return query, None


def not_found(query: str, available: Iterable[ModelInfo], hint: str = "") -> UnknownModelError:
    """Return the error of a name that matches nothing: what is nearest, then what there is."""
    # Of a family the newest stands first in what is available, and is the one to suggest.
    given = list(dict.fromkeys(info.full_name for info in available))
    names = sorted(given)
    remedy = [hint] if hint else []
    near = nearest_names(query, given)
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
        whole = same_name(name)
        for part in (whole, whole.partition("/")[2], whole.rpartition("/")[2]):
            spellings.setdefault(part, name)
            # `claude-sonet` is near to `claude-sonnet`, and only then to `claude-sonnet-5-5`.
            spellings.setdefault(re.sub(r"[-:]\d[-\d:b]*$", "", part), name)
    close = get_close_matches(same_name(query.strip()), spellings, n=6, cutoff=0.7)
    return list(dict.fromkeys(spellings[each] for each in close))[:3]


def _words(name: str) -> set[str]:
    found = set()
    for word in _SPLIT.split(same_name(name)):
        if word and not _DATE.fullmatch(word):
            found.add(word)
    return found


def _best_matches(query: str, available: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Return the models that fit a name in the best of five ways: the whole id, words of the id, a part of the id,
    a part of the display name, parts of all of these in any order."""
    wanted, words = same_name(query), _words(query)
    for fits in (_is_id, _has_words, _is_part_of_id, _is_part_of_name, _has_parts):
        matches = [info for info in available if fits(wanted, words, info)]
        if matches and fits is _is_id:
            return matches[:1]
        if matches:
            return matches
        if len(wanted) < MIN_PART_CHARACTERS:
            return []
    return []


def _is_id(wanted: str, words: set[str], info: ModelInfo) -> bool:
    return wanted in (same_name(info.id), same_name(info.full_name))


def _has_words(wanted: str, words: set[str], info: ModelInfo) -> bool:
    return bool(words) and words <= _words(info.id)


def _is_part_of_id(wanted: str, words: set[str], info: ModelInfo) -> bool:
    return wanted in same_name(info.full_name)


def _is_part_of_name(wanted: str, words: set[str], info: ModelInfo) -> bool:
    return wanted in same_name(info.name)


def _has_parts(wanted: str, words: set[str], info: ModelInfo) -> bool:
    if not any(len(word) >= MIN_PART_CHARACTERS for word in words):
        return False
    texts = [same_name(text) for text in (info.id, info.name, info.provider)]
    return all(any(word in text for text in texts) for word in words)


def _of_one_version(query: str, matches: list[ModelInfo]) -> list[ModelInfo]:
    """Return the matches of the version that a name has, if there are any."""
    wanted = version(query)
    same = [info for info in matches if version(info.id)[: len(wanted)] == wanted]
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
    wanted = {entry.lower() for entry in settings.enabled_models}
    allowed = set()
    for info in available:
        if info.full_name.lower() in wanted:
            allowed.add(info.full_name)
    if not allowed:
        raise ConfigurationError(
            f"scopeModels is on, but enabledModels ({settings.origin('enabled_models')}) has no available model: "
            f"{', '.join(settings.enabled_models)}.",
            remedy="Write each model as provider/id, without patterns (see: retinue models list), "
            "or set scopeModels to false.",
        )
    return ModelScope(tuple(sorted(allowed)))
