"""From the keys of a file to the fields of a spec, and what became of every key.

The loop below is the same for every dialect. It guarantees: each key has exactly one fate; a
bad value is reported and replaced by what its field says; a key said twice never adds up to
more than either; a misspelt key limits but never grants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from retinue.definitions.dialects.shared_rows import SLIP
from retinue.definitions.dialects.structures import ModelChoice, UnreadableGuardError
from retinue.definitions.dialects.table import UNSET, BadValueError, Dialect, Field, Match
from retinue.definitions.dialects.tools import DENY_ALL, ToolChoice, ToolRules
from retinue.definitions.yaml_values import Item, scalar_text
from retinue.domain.spec import AgentSpec, Fate, ModelPolicy, Problem, SessionPolicy, Severity, Source, ToolPolicy

RESTRAINED_MODES = frozenset({"default", "plan", "dontAsk"})
NOT_IN_PLUGINS = frozenset({"hooks", "servers", "permission_mode"})

_UNKNOWN = Fate("ignored", None, "unknown key")
_SAYS_NOTHING = Fate("ignored", None, "no value")
_NOT_IN_PLUGIN = Fate("ignored", None, "not allowed in a plugin")
_PLAIN = ModelPolicy()
_OPEN = ToolPolicy()
_SESSION = SessionPolicy()


@dataclass(slots=True)
class Draft:
    """The fields as read so far. `rows` remembers which row gave a field, to settle two rows
    that mean the same one."""

    values: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, tuple[int, str]] = field(default_factory=dict)
    fates: dict[str, Fate] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    error: Problem | None = None


def translate(dialect: Dialect, items: Iterable[Item], source: Source, first_line: int) -> Draft:
    draft = Draft()
    ranks = dialect.ranks
    for item in items:
        match = dialect.match(item.key)
        if match is None:
            draft.fates[item.key] = _UNKNOWN
            draft.extra[item.key] = item.value
        elif match.field.to is None:
            draft.fates[item.key] = match.fate
            draft.extra[item.key] = item.value
        else:
            _take(draft, item, match, ranks.get(match.field.key, len(ranks)), source, first_line)
    return draft


def _take(draft: Draft, item: Item, match: Match, rank: int, source: Source, first_line: int) -> None:
    row = match.field
    target: str = row.to or ""
    if source == "plugin" and target in NOT_IN_PLUGINS:
        _drop(draft, item, _NOT_IN_PLUGIN)
        draft.problems.append(
            _problem("not-in-plugin", "info", item, first_line, f"'{item.key}' is ignored in plugins.")
        )
        return
    if match.how != "own" and not _accepted(draft, item, match, first_line):
        return
    value = item.value
    kind = row.kind
    if kind.textual and not isinstance(value, (str, list, dict)) and value is not None:
        value = item.text if item.text is not None else scalar_text(value)
    try:
        value = kind.read(value)
    except BadValueError as error:
        value = _bad(draft, item, row, error, first_line)
    else:
        draft.fates[item.key] = match.fate if value is not UNSET else _SAYS_NOTHING
    if value is UNSET:
        return
    _settle(draft, item, row, target, value, rank if match.how == "own" else rank + 1000)


def _settle(draft: Draft, item: Item, row: Field, target: str, value: Any, rank: int) -> None:
    if target not in draft.values:
        draft.values[target] = value
        draft.rows[target] = (rank, item.key)
        return
    old_rank, old_key = draft.rows[target]
    if row.kind.combine is not None:
        draft.values[target] = row.kind.combine(draft.values[target], value)
    elif rank > old_rank:
        _drop(draft, item, Fate("ignored", None, f"'{old_key}' says it already"))
        return
    else:
        draft.values[target] = value
        if old_key != item.key:
            draft.fates[old_key] = Fate("ignored", None, f"'{item.key}' says it")
    draft.rows[target] = (rank, item.key)


def _accepted(draft: Draft, item: Item, match: Match, first_line: int) -> bool:
    """Whether a key that is not spelt as the dialect does still counts; says so either way."""
    row = match.field
    if match.how == "foreign":
        if row.note is SLIP:
            draft.problems.append(_slip(item, row, first_line))
        return True
    mode = row.to == "permission_mode" and item.value in RESTRAINED_MODES
    if match.how == "typo" or (row.kind.role == "grants" and not mode):
        _drop(draft, item, Fate("ignored", None, f"unknown key; did you mean '{row.key}'?"))
        text = f"There is no key '{item.key}'; it is ignored."
        problem = _problem("near-miss-key", "warning", item, first_line, text, f"Did you mean '{row.key}'?")
        draft.problems.append(problem)
        return False
    draft.problems.append(_slip(item, row, first_line))
    return True


def _bad(draft: Draft, item: Item, row: Field, error: BadValueError, first_line: int) -> Any:
    severity: Severity = "error" if row.kind.role == "limits" or isinstance(error, UnreadableGuardError) else "warning"
    text = f"'{item.key}': {error.why}."
    problem = Problem(error.code, severity, text, error.remedy, item.key, item.line + first_line, item.column + 1)
    if isinstance(error, UnreadableGuardError):
        draft.error = draft.error or problem
        draft.fates[item.key] = Fate("ignored", None, f"bad value: {error.why}")
        return UNSET
    draft.problems.append(problem)
    if error.instead is UNSET:
        draft.extra[item.key] = item.value
        draft.fates[item.key] = Fate("ignored", None, f"bad value: {error.why}")
    else:
        draft.fates[item.key] = Fate("translated", row.to, f"bad value: {error.why}")
    return error.instead


def _drop(draft: Draft, item: Item, fate: Fate) -> None:
    draft.fates[item.key] = fate
    draft.extra[item.key] = item.value


def _slip(item: Item, row: Field, first_line: int) -> Problem:
    text = f"'{item.key}' is not a key here; it was read as '{row.key}'."
    return _problem("near-miss-key", "warning", item, first_line, text, f"Write '{row.key}'.")


def _problem(code: str, severity: Severity, item: Item, first_line: int, text: str, remedy: str = "") -> Problem:
    return Problem(code, severity, text, remedy, item.key, item.line + first_line, item.column + 1)


def build(draft: Draft, dialect: Dialect, *, name: str, prompt: str, source: Source, path: str) -> AgentSpec:
    """The spec of a draft that is fit to be one. Its hash is filled in by the caller."""
    values = dict(dialect.defaults, **draft.values) if dialect.defaults else dict(draft.values)
    tools: dict[str, Any] = {}
    model: dict[str, Any] = {}
    session: dict[str, Any] = {}
    parts = {"tools": tools, "model": model, "session": session}
    plain: dict[str, Any] = {}
    for target, value in values.items():
        group, dot, attribute = target.partition(".")
        if dot:
            parts[group][attribute] = value
        else:
            plain[target] = value
    plain["name"] = name
    plain["prompt"] = prompt or plain.get("prompt", "")
    return AgentSpec(
        **plain,
        tools=_tool_policy(tools) if tools else _OPEN,
        model=_model_policy(model) if model else _PLAIN,
        session=SessionPolicy(**session) if session else _SESSION,
        extra=draft.extra,
        source=source,
        path=path,
        dialect=dialect.name,
        fates=draft.fates,
    )


def _tool_policy(tools: dict[str, Any]) -> ToolPolicy:
    choice: ToolChoice | None = tools.pop("allow", None)
    rules: ToolRules | None = tools.pop("rules", None)
    denied: list[str] = list(tools.pop("deny", ()))
    allow = selectors = None
    if choice is not None:
        allow, selectors = choice.allow, choice.selectors
        denied += (name for name in choice.refused if name != "*")
    if rules is not None:
        denied += rules.deny
        if rules.only is not None:
            allow = rules.only if allow is None else tuple(name for name in allow if name in rules.only)
    if DENY_ALL[0] in denied:
        allow = ()
    return ToolPolicy(allow=allow, deny=tuple(dict.fromkeys(denied)), selectors=selectors or (), **tools)


def _model_policy(model: dict[str, Any]) -> ModelPolicy:
    choice: ModelChoice | None = model.pop("name", None)
    fallbacks: tuple[str, ...] = model.pop("fallbacks", ())
    if choice is None:
        return ModelPolicy(fallbacks=fallbacks, **model)
    return ModelPolicy(name=choice.name, fallbacks=(*choice.fallbacks, *fallbacks), **model)
