"""Every check on one file: its bytes, name, description, models, other values and body.

Kept light, because a launch runs these checks to report what is wrong with an agent's file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from msgspec.structs import replace

from retinue.agents.edit import ending
from retinue.agents.files import check_name
from retinue.agents.lint.keys import check_problems, check_unknown_keys, check_unused_keys, distance, fold
from retinue.agents.lint.subject import CheckResult, LintSubject, Repair
from retinue.agents.lint.tools import check_tools
from retinue.core.spec import AgentSpec, ThinkingLevel
from retinue.errors import UsageError

_HEADING = re.compile(r"^\s{0,3}#{1,6}(?:\s.*)?$|^\s*(?:-{3,}|\*{3,}|={3,}|`{3,}.*)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{[^{}\n]{0,200}\}\}|\b(?:TODO|TBD|FIXME|lorem ipsum)\b.*", re.IGNORECASE)
ENOUGH_LETTERS = 12
"""Counted in letters, not words, so that Chinese or Japanese bodies are judged alike."""


def has_instructions(body: str) -> bool:
    """Return whether a body is more than headings, rules, comments and placeholders."""
    if len(body) > 20_000:
        return True
    rest = _PLACEHOLDER.sub("", _HEADING.sub("", _without_comments(body)))
    return sum(char.isalpha() for char in rest) >= ENOUGH_LETTERS


def _without_comments(body: str) -> str:
    # By find, not by a pattern: an unclosed comment in a hostile file would make a pattern slow.
    parts: list[str] = []
    at = 0
    while (start := body.find("<!--", at)) >= 0:
        end = body.find("-->", start)
        if end < 0:
            break
        parts.append(body[at:start])
        at = end + 3
    return "".join([*parts, body[at:]])


def check_bytes(subject: LintSubject) -> Iterator[CheckResult]:
    data = subject.data
    if not data or data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data:
        return
    if subject.text.bom:
        repair = Repair("removed the byte order mark", lambda text: replace(text, bom=False))
        reason = "The file begins with a byte order mark."
        yield subject.report("byte-order-mark", reason, line=1, column=1, repair=repair)
    yield from _line_ends(subject)


def _line_ends(subject: LintSubject) -> Iterator[CheckResult]:
    ends = [ending(line) for line in subject.text.lines]
    counts = Counter(ends)
    # The last line may have no end.
    del counts[""]
    if len(counts) < 2 and "\r" not in counts:
        return
    usual = max(("\n", "\r\n"), key=lambda end: counts[end])
    odd = 1
    while ends[odd - 1] == usual:
        odd += 1
    names = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}
    listed = ", ".join(f"{count} {names[end]}" for end, count in counts.most_common())
    repair = Repair(f"made every line end in {names[usual]}", lambda text: text.with_eol(usual))
    yield subject.report("mixed-line-endings", f"Line endings are mixed: {listed}.", line=odd, column=1, repair=repair)


ALIASES = ("inherit", "default", "auto", "fast", "sonnet", "opus", "haiku", "fable", "opusplan", "best")
FAMILIES = (
    "claude", "gpt", "chatgpt", "codex", "gemini", "gemma", "deepseek", "glm", "kimi", "moonshot", "qwen", "qwq",
    "llama", "mistral", "mixtral", "codestral", "devstral", "magistral", "ministral", "grok", "composer", "minimax",
    "mimo", "phi", "command", "nova", "sonar", "smollm", "granite", "nemotron", "mai", "yi", "hermes", "starcoder",
    "olmo",
)  # fmt: skip
_SERIES = re.compile(r"(?:o[1-9]|sonnet|opus|haiku|fable)(?:$|[-.\d])")
_LIKE_A_MODEL = re.compile(r"\d|^(?:pro|flash|mini|max|large|small|medium|coder|chat|turbo|opus|sonnet|haiku)\b")
_CHOICES = re.compile(r"\s*\|\s*|\s*,\s*")


def is_known(model: str) -> bool:
    """Return True for an alias, any `provider/model`, and the families whose names begin like this."""
    name = model.strip().strip("'\"").casefold()
    if name in ALIASES or name.startswith("@") or "/" in name.strip("/"):
        return True
    word = re.split(r"[\s:@]", name, maxsplit=1)[0]
    return bool(word.startswith(FAMILIES) or _SERIES.match(word))


def suggest(model: str) -> str | None:
    """Return the name that was probably meant: an alias, or the same with its family spelled right."""
    name = model.strip()
    whole = fold(name)
    close = []
    for alias in ALIASES:
        if len(alias) > 3 and distance(whole, alias, 1) <= 1:
            close.append(alias)
    if len(close) == 1:
        return close[0]
    head, mark, rest = name.partition("-")
    families = []
    for family in FAMILIES:
        if len(family) > 3 and distance(fold(head), family, 1) == 1:
            families.append(family)
    if len(families) != 1 or not mark or not _LIKE_A_MODEL.search(rest):
        # `code-analyzer` is some agent's name, not a slip of `codex`.
        return None
    return f"{families[0]}{mark}{rest}"


def alternatives(model: str) -> tuple[str, ...]:
    """Return the models of `a | b`: a text that names two, which only a list may do."""
    if "|" in model:
        return tuple(part for part in _CHOICES.split(model) if part)
    return ()


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


def check_values(subject: LintSubject) -> Iterator[CheckResult]:
    spec = subject.parsed.spec
    if spec is None:
        return
    yield from _name(subject, spec)
    yield from _description(subject, spec)
    yield from _models(subject, spec)
    if spec.color is not None and spec.color.lower() not in COLORS and not _HEX.fullmatch(spec.color):
        reason = f"'{spec.color}' is neither a known colour nor #RRGGBB."
        yield subject.report("invalid-color", reason, key=_key(subject, "color"))
    thinking = spec.model.thinking
    if thinking is not None and thinking.lower() not in _LEVELS and not thinking.isdecimal():
        reason = f"'{thinking}' is no thinking level."
        yield subject.report("unknown-thinking-level", reason, key=_key(subject, "model.thinking"))
    if spec.output_schema is not None:
        yield from _schema(subject, spec.output_schema)
    if spec.permission_mode == "bypassPermissions":
        reason = "The agent asks to do everything without being asked."
        yield subject.report("bypass-mode", reason, key=_key(subject, "permission_mode"))
    yield from _body(subject, spec)


def _schema(subject: LintSubject, schema: Mapping[str, Any]) -> Iterator[CheckResult]:
    # 10 ms that only files with a schema need to spend.
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(dict(schema), offline=True)
    except ValueError as error:
        why = getattr(error, "message", "") or str(error)
        reason = f"The output schema cannot be used: {' '.join(why.split())}"
        remedy = "Give a JSON Schema whose references point into itself."
        yield subject.report("bad-value", reason, remedy, key=_key(subject, "output_schema"), severity="error")


def _name(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    # opencode's names are paths, so a slash is no fault there.
    key = _key(subject, "name")
    try:
        check_name(spec.name.replace("/", "-") if subject.table.name_rule == "path" else spec.name)
    except UsageError as error:
        yield subject.report("unsafe-name", error.message, key=key)
        return
    if subject.parsed.dialect == "gemini" and not _GEMINI_SLUG.fullmatch(spec.name):
        reason = f"Gemini CLI itself refuses the name '{spec.name}'."
        yield subject.report("name-form", reason, key=key, severity="warning")
    elif subject.parsed.dialect == "claude" and not _SLUG.fullmatch(spec.name):
        yield subject.report("name-form", f"'{spec.name}' is not in the usual form.", key=key)


def _description(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    if not subject.parsed.description:
        reason = "There is no description, so nobody knows when to use the agent."
        line, column = subject.place(_key(subject, "description") or "")
        yield subject.report("missing-description", reason, line=line or 1, column=column or 1, severity="warning")
    elif len(spec.description) > MAX_DESCRIPTION:
        reason = f"The description has {len(spec.description):,} characters."
        yield subject.report("long-description", reason, key=_key(subject, "description"))


def _models(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    key = _key(subject, "model.name") or _key(subject, "model.fallbacks")
    for model in (spec.model.name, *spec.model.fallbacks):
        if model is None:
            continue
        several = alternatives(model)
        if several:
            remedy = f"Write [{', '.join(several)}]."
            yield subject.report("several-models", f"'{model}' names several models.", remedy, key=key)
        elif not is_known(model):
            meant = suggest(model)
            reason = f"No model '{model}' is known."
            if meant is None:
                yield subject.report("unknown-model", reason, key=key)
            else:
                remedy = f"Did you mean '{meant}'?"
                yield subject.report("unknown-model", reason, remedy, key=key, severity="warning")


def _body(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    # An agent that appends to its parent's prompt, or keeps it in another file, needs no text of its own.
    if spec.prompt_mode == "append" or not spec.enabled or subject.table.nested_under is not None:
        return
    last = max(len(subject.text.lines), 1)
    if not spec.prompt.strip():
        yield subject.report("empty-body", "There is nothing below the frontmatter.", line=last, column=1)
    elif not has_instructions(spec.prompt):
        line = min((subject.text.close or 0) + 2, last)
        yield subject.report("no-instructions", "The body gives no instructions.", line=line, column=1)


def _key(subject: LintSubject, field: str) -> str | None:
    return next(iter(subject.keys_for(field)), None)


CHECKS = (check_problems, check_bytes, check_unknown_keys, check_unused_keys, check_values, check_tools)


def lint_subject(subject: LintSubject) -> Iterator[CheckResult]:
    """Yield what every check finds in one file."""
    for check in CHECKS:
        yield from check(subject)
