"""An agent file written from a spec, in the spelling of any dialect.

What the dialect can express comes back the same from `parse`: strings are quoted whenever some
reader could take them for something else, and keys that Retinue does not use (`spec.extra`) are
kept. A `AgentDraft` is an agent as a person describes it in a few answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from retinue.agents import encode as quoting
from retinue.agents.dialects.table import UNSET, BadValueError, Dialect, FieldRow
from retinue.agents.dialects.tables import DIALECTS, in_dialect
from retinue.agents.dialects.tools import ToolChoice, split_names
from retinue.agents.dialects.translate import GRANTING_MODES
from retinue.agents.dialects.values import DISABLED, ENABLED
from retinue.agents.encode import ABSENT, SAFEST, encode
from retinue.agents.files import check_name
from retinue.core.spec import AgentSpec, DialectName, ModelPolicy, ToolPolicy
from retinue.errors import UsageError

READ_ONLY = ("read", "grep", "find", "ls")
LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
_OPEN = frozenset({"", "inherit", "default"})


class AgentDraft(Struct, frozen=True, kw_only=True):
    """`tools` are names, or `all`, `none`, `read-only`; what is empty or `inherit` is left open
    and not written into the file."""

    name: str
    description: str
    tools: str = ""
    model: str = ""
    thinking: str = ""
    prompt: str = ""
    readonly: bool = False
    dialect: DialectName = "retinue"


def spec_of(draft: AgentDraft) -> AgentSpec:
    """Raise UsageError for a name that cannot be one and for an empty description."""
    name = check_name(draft.name)
    description = draft.description.strip()
    if not description:
        raise UsageError("The description is empty.", remedy="Say in a sentence when to use the agent.")
    return AgentSpec(
        name=name,
        description=description,
        prompt=draft.prompt.strip() or starter(name, description),
        tools=ToolPolicy(allow=_tools(draft.tools, draft.dialect, draft.readonly)),
        model=ModelPolicy(name=_read_choice(draft.model), thinking=_read_choice(draft.thinking)),
        readonly=True if draft.readonly else None,
        dialect=draft.dialect,
    )


def starter(name: str, description: str) -> str:
    """Instructions that do, until someone writes better ones."""
    return (
        f"You are {name}. {description}\n\n"
        "Do what the task says and nothing beside it. "
        "If something is unclear, choose the simplest reading and say so.\n\n"
        "Report the result first, then what you did with `path:line`, then what is uncertain."
    )


def _tools(text: str, dialect: DialectName, readonly: bool) -> tuple[str, ...] | None:
    words = split_names(text)
    if not words:
        words = READ_ONLY if readonly else ()
        if not words:
            return None
    if len(words) == 1 and words[0].lower() in ("all", "*", "inherit"):
        return None
    if len(words) == 1 and words[0].lower() == "none":
        return ()
    found: dict[str, None] = {}
    for word in words:
        listed = READ_ONLY if word.lower() in ("read-only", "readonly") else (word,)
        for name in listed:
            found |= dict.fromkeys(in_dialect(name, dialect))
    return tuple(found)


def _read_choice(value: str) -> str | None:
    if value.strip() in _OPEN:
        return None
    return value.strip()


_SIMPLE_KEY = re.compile(r"[\w-]+")


def write_agent(spec: AgentSpec, dialect: DialectName) -> str:
    """Return the whole file: frontmatter, then the prompt, LF endings. Raise UsageError for Kimi, whose files
    keep their prompts elsewhere."""
    table = DIALECTS[dialect]
    if table.nested_under is not None:
        raise UsageError(
            f"{table.title} keeps an agent's prompt in a file of its own, so one file cannot hold this agent.",
            remedy="Choose another dialect, such as retinue or claude.",
        )
    fields = statements(spec, dialect)
    everything = {**fields, **spec.extra, **fields}
    if table.simple:
        lines = _simple_lines(fields, everything)
    else:
        lines = []
        for key, value in everything.items():
            lines += _entry(key, value, dialect)
    # A file with NUL in it is binary to every reader.
    prompt = spec.prompt.replace("\0", "\ufffd")
    body = ""
    if prompt:
        body = f"\n{prompt}\n"
    return "\n".join(["---", *lines, "---", body])


def statements(spec: AgentSpec, dialect: DialectName) -> dict[str, Any]:
    """Return the keys that Retinue honours in a file of that dialect, with their values, in order. What
    no row of the dialect can say is left out; a limit becomes the strictest there is instead."""
    found: dict[str, Any] = {}
    said: set[str] = set()
    table = DIALECTS[dialect]
    for row in rows(table):
        if row.to in said:
            continue
        value = encode(spec, row, dialect)
        key = spelling(table, row)
        if row in table.foreign and row.to == "permission_mode" and value in GRANTING_MODES:
            # Such a mode does not count in a file of this dialect.
            value = ABSENT
        if value is ABSENT:
            said.add(row.to or "")
        elif key is not None and _accepts(row, value, spec):
            said.add(row.to or "")
            found[key] = value
    for row in rows(table):
        if row.to is not None and row.to in SAFEST and row.to not in said:
            said.add(row.to)
            found[row.key] = SAFEST[row.to]
    return found


def rows(table: Dialect) -> Iterator[FieldRow]:
    """Yield every row that says something about a field of the spec: the dialect's own first, then
    those that Retinue honours everywhere because they limit."""
    for row in (*table.fields, *table.foreign):
        if table.simple and row.kind is ENABLED:
            # `enabled` wants a real false, and this loader's values are all text.
            continue
        if row.to is not None and row.to != "prompt":
            yield row


def spelling(table: Dialect, row: FieldRow) -> str | None:
    """Return the first way to write the key of `row` that no row before it claims."""
    for word in row.spellings:
        match = table.match(word)
        if match is not None and match.field is row:
            return word
    return None


def _accepts(row: FieldRow, value: Any, spec: AgentSpec) -> bool:
    """Return whether the row reads `value` back, and no list of names as more than the spec allows."""
    # An agent called `true` or a tool called `all` must not open everything.
    try:
        found = row.kind.read(value)
    except BadValueError:
        return False
    if isinstance(found, ToolChoice) and spec.tools.allow is not None:
        return found.allow is not None and set(found.allow) <= set(spec.tools.allow)
    if row.to == "subagents" and spec.subagents is not True:
        return found is not True
    return found is not UNSET


def off_switch(dialect: DialectName) -> tuple[str, bool]:
    """Return the key and value that switch an agent of that dialect off, as Retinue reads them."""
    for row in rows(DIALECTS[dialect]):
        if row.to == "enabled":
            return row.key, row.kind is DISABLED
    raise AssertionError(f"{dialect} has no key that switches an agent off")


def _entry(key: str, value: Any, dialect: DialectName) -> list[str]:
    if isinstance(value, (list, tuple, dict)):
        name = quoting.scalar(key, in_list=True)
        words = isinstance(value, (list, tuple)) and not any(isinstance(item, (list, dict)) for item in value)
        if dialect == "codingcode" and not (words and all(quoting.is_plain_in_list(str(item)) for item in value)):
            # Its own reader knows no nesting, but JSON.
            return [f"{name}: {quoting.json_flow(value)}"]
        if words:
            return [f"{name}: {quoting.flow(value)}"]
    return quoting.entry(key, value)


def _simple_lines(fields: dict[str, Any], everything: dict[str, Any]) -> list[str]:
    """Return the lines for a loader that knows one `key: value` a line, all of it text."""
    # It strips one pair of quotes and undoes no escapes. What does not fit is written as YAML with its key in
    # quotes, which tells our reader to take the whole block for YAML.
    simple: list[str] = []
    lines: list[str] = []
    for key, value in everything.items():
        first, *rest = quoting.entry(key, value)
        if key in fields and isinstance(value, (int, float)):
            value = quoting.scalar(value)
        if _is_simple(value):
            simple.append(f"{key}: {_simple(value)}".rstrip())
        elif first.startswith(f"{key}:"):
            first = quoting.quote(key) + first[len(key) :]
        lines += [first, *rest]
    if len(simple) == len(everything) and all(_SIMPLE_KEY.fullmatch(key) for key in everything):
        return simple
    return lines


def _is_simple(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable() and value.strip() == value != ""
    return value is None


def _simple(value: str | None) -> str:
    if value is None or quoting.is_plain(value):
        return value or ""
    mark = "'" if '"' in value or "\\" in value else '"'
    return f"{mark}{value}{mark}"
