"""Checks on names, descriptions, models and other values, and on the body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from retinue.agents.create import check_name
from retinue.agents.lint import models
from retinue.agents.lint.body import has_instructions
from retinue.agents.lint.finding import Found
from retinue.agents.lint.subject import Subject
from retinue.core.spec import AgentSpec, ThinkingLevel
from retinue.errors import UsageError

MAX_DESCRIPTION = 1024
COLORS = frozenset(
    {
        *("red", "blue", "green", "yellow", "purple", "orange", "pink", "cyan", "amber", "teal", "indigo", "gold"),
        *("neon-green", "neon-cyan", "metallic-blue", "violet", "rose", "lime", "gray", "grey", "fuchsia", "slate"),
        *("navy", "magenta", "white", "black", "primary", "secondary", "accent", "success", "warning", "error", "info"),
    }
)
_HEX = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_GEMINI_SLUG = re.compile(r"[a-z0-9_-]+")
_LEVELS = frozenset(get_args(ThinkingLevel))


def check_values(subject: Subject) -> Iterator[Found]:
    spec = subject.parsed.spec
    if spec is None:
        return
    yield from _name(subject, spec)
    yield from _description(subject, spec)
    yield from _models(subject, spec)
    if spec.color is not None and spec.color.lower() not in COLORS and not _HEX.fullmatch(spec.color):
        reason = f"'{spec.color}' is neither a known colour nor #RRGGBB."
        yield subject.found("invalid-color", reason, key=_key(subject, "color"))
    thinking = spec.model.thinking
    if thinking is not None and thinking not in _LEVELS and not thinking.isdecimal():
        reason = f"'{thinking}' is no thinking level."
        yield subject.found("unknown-thinking-level", reason, key=_key(subject, "model.thinking"))
    if spec.output_schema is not None:
        yield from _schema(subject, spec.output_schema)
    if spec.permission_mode == "bypassPermissions":
        reason = "The agent asks to do everything without being asked."
        yield subject.found("bypass-mode", reason, key=_key(subject, "permission_mode"))
    yield from _body(subject, spec)


def _schema(subject: Subject, schema: Mapping[str, Any]) -> Iterator[Found]:
    import jsonschema_rs  # 10 ms that only files with a schema need to spend

    try:
        jsonschema_rs.validator_for(dict(schema), offline=True)
    except ValueError as error:
        why = getattr(error, "message", "") or str(error)
        reason = f"The output schema cannot be used: {' '.join(why.split())}"
        remedy = "Give a JSON Schema whose references point into itself."
        yield subject.found("bad-value", reason, remedy, key=_key(subject, "output_schema"), severity="error")


def _name(subject: Subject, spec: AgentSpec) -> Iterator[Found]:
    key = _key(subject, "name")
    try:
        check_name(spec.name.replace("/", "-") if subject.table.name_rule == "path" else spec.name)
    except UsageError as error:
        yield subject.found("unsafe-name", error.message, key=key)
        return
    if subject.parsed.dialect == "gemini" and not _GEMINI_SLUG.fullmatch(spec.name):
        reason = f"Gemini CLI itself refuses the name '{spec.name}'."
        yield subject.found("name-form", reason, key=key, severity="warning")
    elif subject.parsed.dialect == "claude" and not _SLUG.fullmatch(spec.name):
        yield subject.found("name-form", f"'{spec.name}' is not in the usual form.", key=key)


def _description(subject: Subject, spec: AgentSpec) -> Iterator[Found]:
    if not subject.parsed.description:
        reason = "There is no description, so nobody knows when to use the agent."
        line, column = subject.place(_key(subject, "description") or "")
        yield subject.found("missing-description", reason, line=line or 1, column=column or 1, severity="warning")
    elif len(spec.description) > MAX_DESCRIPTION:
        reason = f"The description has {len(spec.description):,} characters."
        yield subject.found("long-description", reason, key=_key(subject, "description"))


def _models(subject: Subject, spec: AgentSpec) -> Iterator[Found]:
    key = _key(subject, "model.name") or _key(subject, "model.fallbacks")
    for model in (spec.model.name, *spec.model.fallbacks):
        if model is None:
            continue
        several = models.alternatives(model)
        if several:
            remedy = f"Write [{', '.join(several)}]."
            yield subject.found("several-models", f"'{model}' names several models.", remedy, key=key)
        elif not models.is_known(model):
            meant = models.suggest(model)
            reason = f"No model '{model}' is known."
            if meant is None:
                yield subject.found("unknown-model", reason, key=key)
            else:
                remedy = f"Did you mean '{meant}'?"
                yield subject.found("unknown-model", reason, remedy, key=key, severity="warning")


def _body(subject: Subject, spec: AgentSpec) -> Iterator[Found]:
    if spec.prompt_mode == "append" or not spec.enabled or subject.table.nested_under is not None:
        return
    last = max(len(subject.text.lines), 1)
    if not spec.prompt.strip():
        yield subject.found("empty-body", "There is nothing below the frontmatter.", line=last, column=1)
    elif not has_instructions(spec.prompt):
        line = min((subject.text.close or 0) + 2, last)
        yield subject.found("no-instructions", "The body gives no instructions.", line=line, column=1)


def _key(subject: Subject, field: str) -> str | None:
    return next(iter(subject.keys_for(field)), None)
