"""From the keys of a file to the fields of a spec, and what became of every key.

The loop below is the same for every dialect. It guarantees: each key has exactly one fate; a
bad value is reported and replaced by what its field says, and refuses the launch if the field
restricts; a key said twice never adds up to more than either; a misspelt key limits but never
grants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from retinue.agents.dialects.permissions import ToolRules
from retinue.agents.dialects.rows import SLIP
from retinue.agents.dialects.structures import ModelChoice
from retinue.agents.dialects.table import (
    RESTRICTING,
    UNSET,
    BadValueError,
    Dialect,
    FieldRow,
    Match,
    is_blank,
    unreadable,
)
from retinue.agents.dialects.tools import DENY_ALL, ToolChoice, both_allow
from retinue.agents.yaml_items import Item, scalar_text
from retinue.core.spec import AgentSpec, Fate, ModelPolicy, Problem, SessionPolicy, Severity, Source, ToolPolicy

GRANTING_MODES = frozenset({"acceptEdits", "auto", "bypass", "bypassPermissions"})
NOT_IN_PLUGINS = frozenset({"hooks", "servers", "permission_mode"})

_UNKNOWN = Fate("ignored", None, "unknown key")
_SAYS_NOTHING = Fate("ignored", None, "no value")
_NOT_ISOLATED = Fate("ignored", None, "'isolated' leaves the built-in tools only")
_BEYOND_BUILTIN = ("skills", "tools.extensions", "tools.exclude_extensions")
_SEEMS_KEY = re.compile(r"\s*([A-Za-z_][\w-]*)\s*[:=：]")
_NOT_PERSISTED = Fate("ignored", None, "'persist_session' is false")
_NOT_IN_PLUGIN = Fate("ignored", None, "not allowed in a plugin")
_SHARED: Mapping[str, Any] = {"tools": ToolPolicy(), "model": ModelPolicy(), "session": SessionPolicy()}


class SpecDraft:
    """The fields as read so far. `rows` remembers which row gave a field, to settle two rows
    that mean the same one."""

    __slots__ = ("extra", "fates", "problems", "rows", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.rows: dict[str, tuple[int, str]] = {}
        self.fates: dict[str, Fate] = {}
        self.extra: dict[str, Any] = {}
        self.problems: list[Problem] = []


def translate(dialect: Dialect, items: Iterable[Item], source: Source, first_line: int) -> SpecDraft:
    draft = SpecDraft()
    exact, values, fates = dialect.exact, draft.values, draft.fates
    for item in items:
        key = item.key
        match = exact.get(key) or dialect.match(key)
        if match is None or match.field.to is None:
            fates[key] = _UNKNOWN if match is None else match.fate
            draft.extra[key] = item.value
            continue
        target, kind, value = match.field.to, match.field.kind, item.value
        if (match.how != "own" or source == "plugin") and not _accepts_key(draft, item, match, source, first_line):
            continue
        if kind.textual and type(value) is not str:
            value = _as_text(item)
        try:
            value = kind.read(value)
        except BadValueError as error:
            value = _bad(draft, item, match.field, error, first_line)
        else:
            fates[key] = match.fate
            if value is UNSET and item.value in (None, ""):
                fates[key] = _SAYS_NOTHING
            if item.value is None:
                _report_blank(draft, item, target, first_line)
        if value is UNSET:
            continue
        if target in values:
            _settle(draft, item, match, value, first_line)
        else:
            values[target] = value
            draft.rows[target] = (match.rank, key)
    _mark_ignored(draft)
    return draft


def _mark_ignored(draft: SpecDraft) -> None:
    """Correct the fates of keys that another key of the file leaves without effect."""
    values, fates = draft.values, draft.fates
    if values.get("isolated"):
        fates.update((draft.rows[target][1], _NOT_ISOLATED) for target in _BEYOND_BUILTIN if target in values)
    if values.get("session.persist") is False and "session.directory" in values:
        fates[draft.rows["session.directory"][1]] = _NOT_PERSISTED


def missed_limits(dialect: Dialect, block: str, items: Iterable[Item], first_line: int) -> list[Problem]:
    """Return a problem for each line that seems to be a key that restricts, and was read as part of a
    text: of a frontmatter that is not YAML."""
    lines = block.split("\n")
    missed = set(range(len(lines)))
    for item in items:
        missed.discard(item.line)
        if not isinstance(item.value, str) or lines[item.line].rstrip().endswith(("|", ">", "|-", ">-")):
            missed.difference_update(range(item.line, item.end_line + 1))
    found: list[Problem] = []
    for number in sorted(missed):
        seen = _SEEMS_KEY.match(lines[number])
        match = dialect.match(seen[1]) if seen is not None else None
        if match is None or match.how not in ("own", "foreign"):
            continue
        target = match.field.to
        if target is None or target not in RESTRICTING:
            continue
        lost = Item(match.field.key, None, number, 0, number)
        remedy = f"Write '{lost.key}: …' at the start of the line, and put text that holds a colon in quotes."
        why = "the line was not read as 'key: value'"
        found.append(unreadable(lost, target, why, remedy, "bad-value", first_line))
    return found


def _report_blank(draft: SpecDraft, item: Item, target: str, first_line: int) -> None:
    """Report a key that restricts and has no value, whatever it comes to mean."""
    if is_blank(item, target):
        draft.problems.append(unreadable(item, target, "there is no value", "", "bad-value", first_line))
    elif target == "tools.allow":
        text = f"'{item.key}' has no value, so the agent has no tools."
        remedy = f"Write '{item.key}: none' to mean that, name tools, or remove the key to have them all."
        draft.problems.append(_problem("empty-tools", "warning", item, first_line, text, remedy))


def _as_text(item: Item) -> Any:
    """Return a scalar as its source text; lists, mappings and nothing as they are."""
    if item.value is None or isinstance(item.value, (str, list, dict)):
        return item.value
    if item.text is not None:
        return item.text
    return scalar_text(item.value)


def _settle(draft: SpecDraft, item: Item, match: Match, value: Any, first_line: int) -> None:
    """Settle a field that was said before: both count where that means less, else the better row."""
    # Two restrictions that cannot be combined refuse the launch: either choice could be the wider one.
    row, rank = match.field, match.rank
    target = row.to or ""
    old_rank, old_key = draft.rows[target]
    before = draft.values[target]
    if row.kind.combine is not None:
        draft.values[target] = row.kind.combine(before, value)
    elif rank > old_rank:
        _drop(draft, item, Fate("ignored", None, f"'{old_key}' says it already"))
        return
    else:
        draft.values[target] = value
        if old_key != item.key:
            draft.fates[old_key] = Fate("ignored", None, f"'{item.key}' says it")
    draft.rows[target] = (rank, item.key)
    both = draft.values[target]
    contradicts = row.kind.combine is None
    if isinstance(both, ToolChoice):
        contradicts = both.allow == () and bool(before.allow and value.allow)
    if row.restricts and contradicts and before != value:
        why = f"it says something else than '{old_key}' before it"
        draft.problems.append(unreadable(item, target, why, "Keep one of the two.", "bad-value", first_line))


def _accepts_key(draft: SpecDraft, item: Item, match: Match, source: Source, first_line: int) -> bool:
    """Return whether a key counts that is not spelt as the dialect does, or is in a plugin; report it either way."""
    row = match.field
    if source == "plugin" and row.to in NOT_IN_PLUGINS:
        _drop(draft, item, _NOT_IN_PLUGIN)
        text = f"'{item.key}' is ignored in plugins."
        draft.problems.append(_problem("not-in-plugin", "info", item, first_line, text))
        return False
    if match.how == "own":
        return True
    mode = row.to == "permission_mode" and str(item.value).strip() not in GRANTING_MODES
    if match.how == "foreign" and (row.kind.role != "grants" or mode):
        if row.note is SLIP:
            draft.problems.append(_slip(item, row, first_line))
        return True
    if match.how == "foreign":
        # A mode that lets it act more freely than its own program would.
        _drop(draft, item, Fate("ignored", None, "unknown key, which would widen its rights"))
        text = f"'{item.key}: {item.value}' is ignored: no such key is known here, and it would widen rights."
        draft.problems.append(_problem("near-miss-key", "warning", item, first_line, text))
        return False
    if match.how == "typo" or (row.kind.role == "grants" and not mode):
        _drop(draft, item, Fate("ignored", None, f"unknown key; did you mean '{row.key}'?"))
        text = f"There is no key '{item.key}'; it is ignored."
        problem = _problem("near-miss-key", "warning", item, first_line, text, f"Did you mean '{row.key}'?")
        draft.problems.append(problem)
        return False
    draft.problems.append(_slip(item, row, first_line))
    return True


def _bad(draft: SpecDraft, item: Item, row: FieldRow, error: BadValueError, first_line: int) -> Any:
    if row.restricts:
        draft.problems.append(unreadable(item, row.to or "", error.why, error.remedy, error.code, first_line))
    else:
        text = f"'{item.key}': {error.why}."
        draft.problems.append(_problem(error.code, "warning", item, first_line, text, error.remedy))
    if error.instead is UNSET:
        draft.extra[item.key] = item.value
        draft.fates[item.key] = Fate("ignored", None, f"bad value: {error.why}")
    else:
        draft.fates[item.key] = Fate("translated", row.to, f"bad value: {error.why}")
    return error.instead


def _drop(draft: SpecDraft, item: Item, fate: Fate) -> None:
    draft.fates[item.key] = fate
    draft.extra[item.key] = item.value


def _slip(item: Item, row: FieldRow, first_line: int) -> Problem:
    text = f"'{item.key}' is not a key here; it was read as '{row.key}'."
    return _problem("near-miss-key", "warning", item, first_line, text, f"Write '{row.key}'.")


def _problem(code: str, severity: Severity, item: Item, first_line: int, text: str, remedy: str = "") -> Problem:
    return Problem(code, severity, text, remedy, item.key, item.line + first_line, item.column + 1)


def build(
    draft: SpecDraft,
    dialect: Dialect,
    *,
    name: str,
    prompt: str,
    source: Source,
    path: str,
    problems: tuple[Problem, ...] = (),
) -> AgentSpec:
    """Return the spec of a draft that is fit to be one. Its hash is still to come: see `parse.seal`."""
    values = draft.values
    if dialect.defaults:
        values = {**dialect.defaults, **values}
    fields: dict[str, Any] = {}
    for target, value in values.items():
        group = target.partition(".")[0]
        if group == target:
            fields[target] = value
        elif group not in fields:
            fields[group] = _POLICIES[group](values)
    if prompt:
        fields["prompt"] = prompt
    return AgentSpec(
        name=name,
        **{**_SHARED, **fields},
        extra=draft.extra,
        source=source,
        path=path,
        dialect=dialect.name,
        fates=draft.fates,
        problems=problems,
    )


def _tool_policy(values: Mapping[str, Any]) -> ToolPolicy:
    choice: ToolChoice | None = values.get("tools.allow")
    rules: ToolRules | None = values.get("tools.rules")
    denied: tuple[str, ...] = values.get("tools.deny", ())
    allow: tuple[str, ...] | None = None
    selectors: tuple[str, ...] = ()
    if choice is not None:
        allow, selectors = choice.allow, choice.selectors
        for name in choice.refused:
            if name != "*":
                denied += (name,)
    if rules is not None:
        denied += rules.deny
        allow = both_allow(allow, rules.only)
    if DENY_ALL[0] in denied:
        allow = ()
    extensions, excluded = values.get("tools.extensions"), values.get("tools.exclude_extensions", ())
    calls = rules.rules if rules is not None else ()
    return ToolPolicy(allow, tuple(dict.fromkeys(denied)), selectors, extensions, excluded, calls)


def _model_policy(values: Mapping[str, Any]) -> ModelPolicy:
    choice: ModelChoice | None = values.get("model.name")
    name, fallbacks = None, values.get("model.fallbacks", ())
    if choice is not None:
        name, fallbacks = choice.name, (*choice.fallbacks, *fallbacks)
    return ModelPolicy(name, fallbacks, values.get("model.thinking"), values.get("model.temperature"))


_POLICIES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "tools": _tool_policy,
    "model": _model_policy,
    "session": lambda values: SessionPolicy(
        values.get("session.persist"), values.get("session.directory"), values.get("session.transcript")
    ),
}
