"""Every check on one file: its bytes, keys, name, description, models, tools, other values and body.

Kept light, because a launch runs these checks to report what is wrong with an agent's file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from retinue.agents.convert import differences
from retinue.agents.dialects.tables import DIALECTS, in_dialect, is_foreign
from retinue.agents.dialects.tools import NOT_TOOLS, is_servers
from retinue.agents.edit import FileLines, bare, ending, rename
from retinue.agents.folders import by_place
from retinue.agents.frontmatter import Parsed, read, split
from retinue.agents.lint.subject import CheckResult, LintSubject, Repair
from retinue.agents.write import check_name, entry, flow, quote
from retinue.agents.yaml_reader import Item, YamlError, load_value
from retinue.core.spec import THINKING_LEVELS, AgentSpec, Severity
from retinue.core.spelling import distance, fold, nearest
from retinue.core.tool_names import TOOL_EFFECTS, TOOL_NAME_ALIASES, base_name, canonical, misspelt_tool
from retinue.errors import UsageError


def check_problems(subject: LintSubject) -> Iterator[CheckResult]:
    """Yield what the reader reports, with the repairs that are known for it."""
    for problem in subject.parsed.problems:
        result = subject.report(
            problem.code,
            problem.message,
            problem.remedy or None,
            key=problem.key,
            line=problem.line,
            column=problem.column,
            severity=problem.severity,
        )
        if problem.code == "near-miss-key" and problem.key is not None:
            result = _near_miss(subject, problem.key, result)
        elif problem.code == "duplicate-key" and problem.key is not None:
            result = replace(result, repair=_keep_one(subject, problem.key))
        elif problem.code == "frontmatter-recovered":
            result = replace(result, repair=_quoting_repair(subject))
        yield result


def check_unknown_keys(subject: LintSubject) -> Iterator[CheckResult]:
    reported = {problem.key for problem in subject.parsed.problems}
    for key, fate in subject.parsed.fates.items():
        if fate.fate == "ignored" and fate.why == "unknown key" and key not in reported:
            unknown = f"'{key}' is not a key that {subject.table.title} has."
            result = _elsewhere(subject, key) or _misspelt(subject, key)
            yield result or subject.report("unknown-key", unknown, key=key)


def check_unused_keys(subject: LintSubject) -> Iterator[CheckResult]:
    """Keys that the file's own program knows and nothing here uses."""
    for key in subject.parsed.fates:
        match = subject.table.exact.get(key)
        if match is None or match.field.to is not None:
            continue
        reason = f"'{key}' has no effect: {match.field.note}."
        remedy = f"Leave it for {subject.table.title}, and do not rely on it here."
        severity: Severity = "warning" if match.field.misses else "info"
        yield subject.report("unused-key", reason, remedy, key=key, severity=severity)


def _misspelt(subject: LintSubject, key: str) -> CheckResult | None:
    # A key that some program has is no slip, even if nothing here uses it.
    if any(key in row.spellings for dialect in DIALECTS.values() for row in dialect.fields):
        return None
    near = nearest(key, [row.key for row in subject.table.fields if row.to is not None])
    if near is None:
        return None
    repair = _rename_key(subject, key, near) if near not in subject.parsed.fates else None
    reason = f"There is no key '{key}'; it is ignored."
    return subject.report("near-miss-key", reason, f"Did you mean '{near}'?", key=key, repair=repair)


def _near_miss(subject: LintSubject, key: str, result: CheckResult) -> CheckResult:
    match = subject.table.match(key)
    if match is None:
        return result
    own = subject.own_key(match.field.to)
    if own is None and match.how == "foreign":
        reason = f"Retinue honours '{key}', but {subject.table.title} itself does not know it."
        return subject.report("honoured-elsewhere", reason, key=key, severity="info")
    right = own or match.field.key
    if right == key or right in subject.parsed.fates:
        return result
    finding = replace(result.finding, remedy=f"Did you mean '{right}'?")
    if subject.parsed.fates[key].fate != "ignored":
        reason = f"'{key}' is not a key of {subject.table.title}; it was read as '{right}'."
        finding = replace(finding, reason=reason, remedy=f"Write '{right}'.")
    return CheckResult(finding, _rename_key(subject, key, right))


def _elsewhere(subject: LintSubject, key: str) -> CheckResult | None:
    """Find a key that some other dialect has for a field this one spells differently, or not at all."""
    for dialect in sorted(DIALECTS.values(), key=lambda table: table.name in ("retinue", "generic")):
        field = next((row.to for row in dialect.fields if key in row.spellings and row.to is not None), None)
        if field is None or field == "prompt":
            continue
        own = subject.own_key(field)
        reason = f"'{key}' is a key of {dialect.title}; here it has no effect."
        if own is None:
            remedy = "Remove it, or convert the file: retinue agents convert --to retinue"
        elif own in subject.parsed.fates:
            remedy = f"'{own}' says it here."
        elif by_place(subject.parsed.file) is None:
            remedy = f"Write '{own}', or move the file where {dialect.title} keeps its agents."
        else:
            repair = _rename_key(subject, key, own)
            return subject.report("foreign-key", reason, f"Write '{own}'.", key=key, repair=repair)
        return subject.report("foreign-key", reason, remedy, key=key, severity="info")
    return None


def _rename_key(subject: LintSubject, key: str, right: str) -> Repair:
    match = subject.table.match(right)
    field = match.field.to if match is not None else None

    def apply(text: FileLines) -> FileLines:
        entries = text.find(key)
        return rename(text, entries[0], right) if len(entries) == 1 else text

    return Repair(f"renamed '{key}' to '{right}'", apply, frozenset({field, "extra"} if field else ()))


def _keep_one(subject: LintSubject, key: str) -> Repair:
    """Return the repair that drops all but one of the places of a key."""
    # Only the reader knows which of them it takes, so the one to keep is found by trying.

    def apply(text: FileLines) -> FileLines:
        items = text.find(key)
        for candidate in reversed(items):
            new = text
            for item in reversed(items):
                if item != candidate:
                    new = new.remove(item)
            after = subject.read(new.encode()).parsed.spec
            if after is not None and subject.parsed.spec is not None and not differences(subject.parsed.spec, after):
                return new
        return text

    return Repair(f"removed the '{key}' that has no effect", apply)


def _quoting_repair(subject: LintSubject) -> Repair | None:
    """Quote the values that are not YAML by themselves and leave every other line alone."""
    parts = split(subject.data or b"")
    if parts.block is None:
        return None
    matter = read(parts.block, subject.table.knows, simple=subject.table.simple)
    broken = [item for item in matter.items if not _is_yaml(subject.text, item)]
    if not broken:
        return None
    keys = ", ".join(dict.fromkeys(f"'{item.key}'" for item in broken))

    def apply(text: FileLines) -> FileLines:
        for item in reversed(broken):
            last = item.end_line
            while last > item.line and not text.lines[last - 1].strip():
                last -= 1
            text = text.replace_lines(item.line, last, _rewrite_item(text, item))
        return text

    return Repair(f"put the value of {keys} in quotes", apply)


def _is_yaml(text: FileLines, item: Item) -> bool:
    lines = "".join(bare(line) + "\n" for line in text.lines[item.line - 1 : item.end_line])
    try:
        return bool(load_value(lines) == item.value)
    except YamlError:
        return False


def _rewrite_item(text: FileLines, item: Item) -> tuple[str, ...]:
    if not isinstance(item.value, str):
        return tuple(entry(item.key, item.value))
    head, colon, value = bare(text.lines[item.line - 1]).partition(":")
    space = value[: len(value) - len(value.lstrip())] or " "
    return (f"{head}{colon}{space}{quote(item.value)}",)


_HEADING = re.compile(r"^\s{0,3}#{1,6}(?:\s.*)?$|^\s*(?:-{3,}|\*{3,}|={3,}|`{3,}.*)$", re.MULTILINE)
_PLACEHOLDER_TEXT = re.compile(r"\{\{[^{}\n]{0,200}\}\}|\b(?:TODO|TBD|FIXME|lorem ipsum)\b.*", re.IGNORECASE)
MIN_LETTERS = 12
"""Counted in letters, not words, so that Chinese or Japanese bodies are judged alike."""


def has_instructions(body: str) -> bool:
    """Return whether a body is more than headings, rules, comments and placeholders."""
    if len(body) > 20_000:
        return True
    text = _PLACEHOLDER_TEXT.sub("", _HEADING.sub("", _without_comments(body)))
    return sum(char.isalpha() for char in text) >= MIN_LETTERS


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


MODEL_ALIASES = ("inherit", "default", "auto", "fast", "sonnet", "opus", "haiku", "fable", "opusplan", "best")
MODEL_FAMILIES = (
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
    if name in MODEL_ALIASES or name.startswith("@") or "/" in name.strip("/"):
        return True
    word = re.split(r"[\s:@]", name, maxsplit=1)[0]
    return bool(word.startswith(MODEL_FAMILIES) or _SERIES.match(word))


def suggest(model: str) -> str | None:
    """Return the name that was probably meant: an alias, or the same with its family spelled right."""
    name = model.strip()
    folded = fold(name)
    aliases = [alias for alias in MODEL_ALIASES if len(alias) > 3 and distance(folded, alias, 1) <= 1]
    if len(aliases) == 1:
        return aliases[0]
    head, mark, version = name.partition("-")
    folded = fold(head)
    families = [family for family in MODEL_FAMILIES if len(family) > 3 and distance(folded, family, 1) == 1]
    if len(families) != 1 or not mark or not _LIKE_A_MODEL.search(version):
        # `code-analyzer` is some agent's name, not a slip of `codex`.
        return None
    return f"{families[0]}{mark}{version}"


MAX_DESCRIPTION_CHARACTERS = 1024
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


def check_values(subject: LintSubject) -> Iterator[CheckResult]:
    spec = subject.parsed.spec
    if spec is None:
        return
    yield from _name(subject, spec)
    yield from _description(subject, spec)
    yield from _models(subject, spec)
    if spec.color is not None and spec.color.lower() not in COLORS and not _HEX.fullmatch(spec.color):
        reason = f"'{spec.color}' is neither a known colour nor #RRGGBB."
        yield subject.report("invalid-color", reason, field="color")
    thinking = spec.model.thinking
    if thinking is not None and thinking.lower() not in THINKING_LEVELS and not thinking.isdecimal():
        reason = f"'{thinking}' is no thinking level."
        yield subject.report("unknown-thinking-level", reason, field="model.thinking")
    if spec.output_schema is not None:
        yield from _schema(subject, spec.output_schema)
    if spec.permission_mode == "bypassPermissions":
        reason = "The agent asks to do everything without being asked."
        yield subject.report("bypass-mode", reason, field="permission_mode")
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
        yield subject.report("bad-value", reason, remedy, field="output_schema", severity="error")


def _name(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    # opencode's names are paths, so a slash is no fault there.
    key = subject.key_for("name")
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
        line, column = subject.place(subject.key_for("description") or "")
        yield subject.report("missing-description", reason, line=line or 1, column=column or 1, severity="warning")
    elif len(spec.description) > MAX_DESCRIPTION_CHARACTERS:
        reason = f"The description has {len(spec.description):,} characters."
        yield subject.report("long-description", reason, field="description")


def _models(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    key = subject.key_for("model.name") or subject.key_for("model.fallbacks")
    for model in filter(None, (spec.model.name, *spec.model.fallbacks)):
        if "|" in model:
            # A text that names two, which only a list may do.
            remedy = f"Write [{', '.join(filter(None, _CHOICES.split(model)))}]."
            yield subject.report("several-models", f"'{model}' names several models.", remedy, key=key)
        elif not is_known(model):
            near = suggest(model)
            hint = f"Did you mean '{near}'?" if near is not None else None
            severity: Severity | None = None if near is None else "warning"
            reason = f"No model '{model}' is known."
            yield subject.report("unknown-model", reason, hint, key=key, severity=severity)


def _body(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    # An agent that appends to its parent's prompt, or keeps it in another file, needs no text of its own.
    if spec.prompt_mode == "append" or not spec.enabled or subject.table.nested_under is not None:
        return
    last = max(len(subject.text.lines), 1)
    if not spec.prompt.strip():
        yield subject.report("empty-body", "There is nothing below the frontmatter.", line=last, column=1)
    elif not has_instructions(spec.prompt):
        line = min((subject.text.close or 1) + 1, last)
        yield subject.report("no-instructions", "The body gives no instructions.", line=line, column=1)


OTHER_PROGRAM_TOOLS = frozenset(
    {
        *("artifact", "endconversation", "enterplanmode", "exitplanmode", "enterworktree", "exitworktree", "monitor"),
        *("listmcpresourcestool", "readmcpresourcetool", "schedulewakeup", "slashcommand", "workflow"),
        *("croncreate", "crondelete", "cronlist", "waitformcpservers", "computer", "memory", "think", "thinking"),
        *("changes", "extensions", "findtestfiles", "githubrepo", "new", "opensimplebrowser", "runnotebooks"),
        *("runtasks", "runtests", "terminalselection", "testfailure", "vscode", "vscodeapi", "write_todos"),
    }
)
"""Names of tools that other programs have and Retinue has no counterpart for."""

_MAX_SUGGESTIONS = 100
_ALL_TOOLS_WORDS = frozenset({"*", "all"})
_SAYS_READ_ONLY = re.compile(r"\bread[- ]?only\b", re.IGNORECASE)


def check_tools(subject: LintSubject) -> Iterator[CheckResult]:
    spec = subject.parsed.spec
    if spec is None:
        return
    yield from _names(subject, spec.tools.allow or (), "tools.allow", "it gives the agent nothing")
    yield from _names(subject, spec.tools.deny, "tools.deny", "it denies nothing")
    yield from _resolution(subject, spec)
    yield from _read_only(subject, spec)
    yield from _comma_text(subject)


def _names(subject: LintSubject, names: tuple[str, ...], field: str, effect: str) -> Iterator[CheckResult]:
    dialect = subject.parsed.dialect
    for index, name in enumerate(names):
        base = base_name(name)
        report = partial(subject.report, field=field, word=base)
        if canonical(name) and is_foreign(base, dialect):
            own = ", ".join(in_dialect(base, dialect))
            reason = f"{subject.table.title} itself has no tool '{base}'; Retinue reads it as {own}."
            yield report("foreign-tool-name", reason, f"Write '{own}'.")
        if canonical(name) or is_servers(name) or name.lower() in _ALL_TOOLS_WORDS or base in NOT_TOOLS:
            continue
        if dialect == "opencode" and "_" in base and misspelt_tool(base) is None:
            # `server_tool`: which servers there are is known only at run time.
            continue
        if base.lower() in OTHER_PROGRAM_TOOLS:
            yield report("tool-elsewhere", f"Retinue has no tool like '{base}'.")
            continue
        near = None
        if index < _MAX_SUGGESTIONS:
            # Names of two or three letters resemble too many others to be suggested.
            near = nearest(base, [alias for alias in TOOL_NAME_ALIASES if len(alias) > 3])
        remedy = "Correct the name, or write mcp__SERVER__TOOL for a server's."
        if near:
            remedy = f"Did you mean '{in_dialect(near, dialect)[0]}'?"
        severity: Severity = "info" if dialect == "copilot" and near is None else "warning"
        reason = f"Retinue has no tool '{base}'; unless a plugin brings it, {effect}."
        yield report("unknown-tool", reason, remedy, severity=severity)


def _resolution(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    tools = spec.tools
    allowed = tools.allow or ()
    if allowed and not tools.selectors and not any(canonical(name) or is_servers(name) for name in allowed):
        reason = f"None of these tools exists: {', '.join(allowed[:5])}. The agent would be refused."
        yield subject.report("tools-resolve-to-nothing", reason, field="tools.allow")
    denied = _meanings(name for name in tools.deny if "(" not in name)
    meanings = _meanings(allowed)
    all_denied = meanings and meanings <= denied and not tools.selectors and not any(map(is_servers, allowed))
    if all_denied or not _ALL_TOOLS_WORDS.isdisjoint(map(str.lower, tools.deny)):
        deny_key = subject.key_for("tools.deny") or subject.key_for("tools.rules")
        yield subject.report("all-tools-denied", "The deny list leaves no tool.", key=deny_key)
        return
    for name in allowed:
        if name in tools.deny or (canonical(name) and denied.issuperset(canonical(name))):
            reason = f"'{name}' is allowed and denied."
            yield subject.report("allowed-and-denied", reason, field="tools.allow", word=name)


def _meanings(names: Iterable[str]) -> set[str]:
    """Return the tools of Retinue that the names mean."""
    return {tool for name in names for tool in canonical(name)}


def _read_only(subject: LintSubject, spec: AgentSpec) -> Iterator[CheckResult]:
    # A shell is no contradiction: a read-only agent has one that cannot write.
    denied = _meanings(spec.tools.deny)
    writing: list[str] = []
    for name in spec.tools.allow or ():
        effects = {effect for tool in canonical(name) if tool not in denied for effect in TOOL_EFFECTS[tool]}
        if "execute" not in effects and "write" in effects:
            writing.append(name)
        elif "execute" in effects and spec.readonly:
            reason = f"'{name}' runs in a sandbox here."
            yield subject.report("readonly-shell", reason, field="tools.allow", word=name)
    if spec.readonly:
        for name in writing:
            reason = f"The agent is read-only, but lists '{name}', which writes."
            yield subject.report("readonly-write-tool", reason, field="tools.allow", word=name)
    elif writing and spec.readonly is None and _SAYS_READ_ONLY.search(spec.description):
        reason = f"The description says read-only, but the agent has {', '.join(writing)}."
        yield subject.report("says-read-only", reason, field="tools.allow")


def _comma_text(subject: LintSubject) -> Iterator[CheckResult]:
    # CodingCode's own loader drops a `tools` that is no list and then allows everything.
    names = subject.parsed.tools
    if subject.parsed.dialect != "codingcode" or not names:
        return
    items = subject.text.find("tools")
    if len(items) != 1 or items[0].line != items[0].end_line:
        return
    line = subject.text.lines[items[0].line - 1]
    if line[items[0].key_end - 1 :].lstrip(": \t").startswith("["):
        return

    def apply(text: FileLines) -> FileLines:
        item = text.find("tools")[0]
        return text.replace_lines(item.line, item.end_line, (f"tools: {flow(names)}",))

    repair = Repair("wrote 'tools' as a list", apply)
    yield subject.report(
        "comma-tools", "CodingCode itself would give this agent every tool.", key="tools", repair=repair
    )


CHECKS = (check_problems, check_bytes, check_unknown_keys, check_unused_keys, check_values, check_tools)


def lint_subject(subject: LintSubject) -> Iterator[CheckResult]:
    """Yield what every check finds in one file."""
    for check in CHECKS:
        yield from check(subject)


def lint_file(parsed: Parsed, data: bytes) -> Iterator[CheckResult]:
    """Yield what every check finds in a file of this content."""
    return lint_subject(LintSubject(parsed, data))
